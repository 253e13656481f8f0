"""How commands speak: one JSON document on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from optimizer.errors import BadInput, RatchetError
from storage.errors import StorageError


def print_json(document: Any) -> None:
    """Print one JSON document on stdout; numbers that JSON cannot write are null."""
    try:
        text = json.dumps(document, indent=2, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        from api.reports.export import finite  # here: hardly ever needed, and slow to import

        text = json.dumps(finite(document), indent=2, ensure_ascii=False, default=str)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Print one line of progress on stderr."""
    click.echo(text, err=True)


def print_error(error: RatchetError | StorageError) -> None:
    """Print what happened, every problem with its path and hint, and what to do."""
    say(f"ratchet: {error.message}")
    if isinstance(error, BadInput):
        for problem in error.problems:
            value = "" if problem.value is None else f" (got {problem.value!r})"
            hint = f"; {problem.hint}" if problem.hint else ""
            say(f"  {problem.path}: {problem.message}{value}{hint}")
    if error.remedy:
        say(f"  what to do: {error.remedy}")


def tell_removed(name: str, as_json: bool) -> None:
    """Say that something is gone."""
    if as_json:
        print_json({"removed": name})
    else:
        say(f"removed {name}")
