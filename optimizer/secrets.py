"""Secrets by reference: `env:NAME` and `file:PATH` are resolved at the last moment and masked wherever shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from optimizer.errors import BadInput, Problem

REFERENCE = re.compile(r"^(env|file):(.+)$", re.DOTALL)
SECRET_NAME = re.compile(
    r"TOKEN(?!IZERS?(_|$)|S(_|$))|SECRET|PASSW(OR)?D|PASSPHRASE|API_?KEY|ACCESS_KEY|PRIVATE_?KEY|CREDENTIAL",
    re.IGNORECASE,
)
"""Variables that are masked by their name; `TOKENIZERS_PARALLELISM` and numbers of tokens are none."""


def is_secret(name: str, value: object) -> bool:
    """Say whether a variable must be masked: it is a reference, or its name says so."""
    return bool(SECRET_NAME.search(name)) or bool(REFERENCE.match(str(value)))


def resolve(env: Mapping[str, str]) -> tuple[dict[str, str], frozenset[str]]:
    """Return the environment with references replaced by their values, and the names to mask.

    Raises:
        BadInput: a reference points nowhere.
    """
    resolved: dict[str, str] = {}
    secret: set[str] = set()
    for name, value in env.items():
        if is_secret(name, value):
            secret.add(name)
        resolved[name] = _value_of(name, value)
    return resolved, frozenset(secret)


def _value_of(name: str, value: str) -> str:
    match = REFERENCE.match(value)
    if match is None:
        return value
    kind, target = match.groups()
    where = f"launch.env.{name}"
    if kind == "env":
        if target not in os.environ:
            raise BadInput(f"secret {value} is not set", [Problem(where, f"variable {target} is not set here")])
        return os.environ[target]
    try:
        return Path(target).expanduser().read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise BadInput(f"secret {value} cannot be read", [Problem(where, reason)]) from error
