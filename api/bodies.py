"""Documents that people write: a specification or a host entry, as JSON or as YAML, by the request's content type."""

from __future__ import annotations

import json
from typing import Annotated, Any

import yaml
from fastapi import Depends, Request

from api.problems import ApiProblem
from api.schemas import HOST_EXAMPLE, SPEC_EXAMPLE
from optimizer.errors import BadInput, Problem
from optimizer.spec import load_yaml

JSON_TYPES = frozenset({"application/json", ""})
YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})


async def document(request: Request) -> Any:
    """Return the body's document.

    Raises:
        BadInput: not readable; where and why.
        ApiProblem: 415 for another content type.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise BadInput("the body is not UTF-8", [Problem("body", "is not UTF-8 text")]) from error
    if kind in YAML_TYPES:
        return _yaml(text)
    if kind not in JSON_TYPES:
        raise ApiProblem(415, f"{kind[:80]!r} is not understood", remedy="send application/json or application/yaml")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadInput("the body is not JSON", [Problem("body", str(error)[:200])]) from error


def _yaml(text: str) -> Any:
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise BadInput("the document uses YAML aliases", [Problem("body", "aliases (*name) are not accepted")])
        return json.loads(json.dumps(load_yaml(text, "the document"), default=str))
    except yaml.YAMLError:
        return load_yaml(text, "the document")
    except (RecursionError, TypeError, ValueError) as error:
        raise BadInput("the document cannot be used", [Problem("body", str(error)[:200])]) from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _body(title: str, example: dict[str, Any]) -> dict[str, Any]:
    shown = {title: {"summary": title, "value": example}}
    schema = {"type": "object"}
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": schema, "examples": shown},
                "application/yaml": {"schema": schema, "examples": shown},
            },
        }
    }


SPEC_BODY = _body("kimi-eagle3", SPEC_EXAMPLE)
HOST_BODY = _body("gpu-box", HOST_EXAMPLE)
Document = Annotated[Any, Depends(document)]
