"""Options that every command over the API shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from api.client import DEFAULT_URL, Ratchet
from optimizer.errors import BadInput, Problem

F = TypeVar("F", bound=Callable[..., Any])


def api_options(command: F) -> F:
    """Add `--api` and `--key`."""
    key = click.option("--key", envvar="RATCHET_API_KEY", help="API key (or RATCHET_API_KEY).")
    url = click.option(
        "--api",
        envvar="RATCHET_API_URL",
        metavar="URL",
        default=DEFAULT_URL,
        show_default=True,
        help="The service (or RATCHET_API_URL).",
    )
    return url(key(command))


def json_option(command: F) -> F:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")(command)


def json_format_option(command: F) -> F:
    """Add `--json` to a command that has `--format`."""
    return click.option("--json", "as_json", is_flag=True, help="The same as --format json.")(command)


def connect(api: str, key: str | None) -> Ratchet:
    """Return a client.

    Raises:
        BadInput: `api` is no URL.
    """
    if not api.startswith(("http://", "https://")):
        raise BadInput(
            "bad --api", [Problem("--api", "must begin with http:// or https://", api, f"like {DEFAULT_URL}")]
        )
    return Ratchet(api, key)
