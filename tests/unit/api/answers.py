"""Writes `api/answers.py`, the types of the client's answers, from the models of `api/schemas.py`.

    python -m tests.unit.api.answers

Decides how a model reads as JSON: a time is a text, an enumeration its values' text, a model a dictionary.
"""

from __future__ import annotations

import types
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from api import schemas

TARGET = Path(__file__).parents[3] / "api" / "answers.py"
HEAD = '''"""What the service answers, as types for the client: each is the dictionary that the JSON is read into.

Written from `api/schemas.py` by `python -m tests.unit.api.answers`; a test compares. Times are texts in ISO 8601.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict
'''
NO_ANSWERS = (schemas.Page, schemas.Problem, schemas.StudyPatch, schemas.WindowIn, schemas.WindowPatch, schemas.KeyIn)
"""Requests, errors, and the frame that the client takes off."""


def source() -> str:
    """Return the text of the module."""
    models = [m for m in vars(schemas).values() if isinstance(m, type) and issubclass(m, BaseModel)]
    shown = [m for m in models if m.__module__ == schemas.__name__ and m not in NO_ANSWERS]
    return "\n\n".join([HEAD, *(_class(m) for m in shown)])


def _class(model: type[BaseModel]) -> str:
    base = model.__mro__[1]
    inherited = base.model_fields if issubclass(base, BaseModel) else {}
    name = base.__name__ if base is not BaseModel else "TypedDict"
    lines = [f"class {model.__name__}({name}):", f'    """{(model.__doc__ or "").strip()}"""', ""]
    lines += [f"    {n}: {_text(f.annotation)}" for n, f in model.model_fields.items() if n not in inherited]
    return "\n".join(lines) + "\n"


def _text(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return " | ".join(_text(p) for p in parts)
    if origin is Literal:
        return f"Literal[{', '.join(repr(p) for p in parts)}]".replace("'", '"')
    if origin is not None:
        return f"{origin.__name__}[{', '.join(_text(p) for p in parts)}]"
    if kind is type(None):
        return "None"
    if kind is Any:
        return "Any"
    if kind is datetime or issubclass(kind, StrEnum):
        return "str"
    return str(kind.__name__)


if __name__ == "__main__":
    TARGET.write_text(source(), encoding="utf-8")
