"""`ratchet key`: API keys.

Works on the database itself, so that the first key can be made on the machine of the service before anybody may come
in from elsewhere; with `--api` it works over a running service and needs an admin's key.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from api.cli.output import print_json, say
from api.cli.tables import print_table
from optimizer.errors import BadInput, Conflict, NotFound, Problem

if TYPE_CHECKING:
    from pydantic import BaseModel

    from api.answers import KeyMade, KeyOut

F = TypeVar("F", bound=Callable[..., Any])
SCOPES = ("viewer", "operator", "admin")


@click.group()
def key() -> None:
    """API keys: a viewer reads, an operator steers studies, an admin changes hosts and keys."""


def _options(command: F) -> F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout."),
        click.option("--key", "api_key", envvar="RATCHET_API_KEY", help="An admin's key, with --api."),
        click.option("--api", metavar="URL", help="Work over the service at this URL, not on the database."),
        click.option(
            "--db", "db_url", metavar="URL", help="Database URL (or RATCHET_DB_URL); default: the SQLite file."
        ),
    ):
        command = option(command)
    return command


@key.command()
@click.argument("name")
@click.option("--scope", default="operator", show_default=True, help="viewer, operator or admin; several by comma.")
@click.option("--expires-days", type=click.FloatRange(0, 36_500, min_open=True), help="When it ends by itself.")
@_options
def create(
    name: str,
    scope: str,
    expires_days: float | None,
    db_url: str | None,
    api: str | None,
    api_key: str | None,
    as_json: bool,
) -> None:
    """Make a key. It is shown once."""
    scopes = _scopes(scope)
    if api:
        from api.client import Ratchet

        with Ratchet(api, api_key) as ratchet:
            made = ratchet.create_key(name, scopes, expires_days=expires_days)
    else:
        made = _create_here(name, scopes, expires_days, db_url)
    if as_json:
        print_json(made)
        return
    say(f"key {made['name']} ({made['id']}), {', '.join(made['scopes'])}; it is shown this once:")
    click.echo(made["key"])


@key.command("list")
@_options
def list_keys(db_url: str | None, api: str | None, api_key: str | None, as_json: bool) -> None:
    """List keys, usable or not; never their text."""
    if api:
        from api.client import Ratchet

        with Ratchet(api, api_key) as ratchet:
            found = list(ratchet.keys())
    else:
        found = _list_here(db_url)
    if as_json:
        print_json({"items": found})
        return
    rows = [
        [
            k["id"],
            k["name"],
            ", ".join(k["scopes"]),
            "usable" if k["usable"] else "revoked" if k["revoked_at"] else "expired",
            str(k["last_used_at"] or "never")[:16],
        ]
        for k in found
    ]
    print_table(
        ["id", "name", "scopes", "state", "last used"],
        rows,
        empty="no keys; without one only this machine may use the service",
    )


@key.command()
@click.argument("key_id", metavar="ID")
@_options
def revoke(key_id: str, db_url: str | None, api: str | None, api_key: str | None, as_json: bool) -> None:
    """Revoke a key by id or name, at once."""
    if api:
        from api.client import Ratchet

        with Ratchet(api, api_key) as ratchet:
            gone = ratchet.revoke_key(key_id)
    else:
        gone = _revoke_here(key_id, db_url)
    if as_json:
        print_json(gone)
    else:
        say(f"revoked {gone['name']} ({gone['id']})")


def _scopes(text: str) -> list[str]:
    scopes = [s.strip() for s in text.split(",") if s.strip()]
    unknown = [s for s in scopes if s not in SCOPES]
    if unknown or not scopes:
        problem = Problem("--scope", "is not a scope", ", ".join(unknown) or text, f"one of {', '.join(SCOPES)}")
        raise BadInput("the key cannot be made", [problem])
    return scopes


def _create_here(name: str, scopes: list[str], expires_days: float | None, db_url: str | None) -> KeyMade:
    from api import auth, schemas, views
    from api.cli.database import open_migrated, settings_for
    from optimizer.clock import SystemClock
    from optimizer.spec import STUDY_NAME
    from storage import keys
    from storage.errors import Duplicate

    if not STUDY_NAME.match(name):
        problem = Problem("NAME", "use letters, digits, dots, dashes and underscores", name)
        raise BadInput("the key cannot be made", [problem])
    now = SystemClock().now()
    expires_at = now + timedelta(days=expires_days) if expires_days else None
    record, text = auth.new_key(name, scopes, now=now, expires_at=expires_at)
    db = open_migrated(settings_for(db_url))
    try:
        with db.write() as conn:
            keys.put(conn, record)
    except Duplicate as error:
        raise Conflict(error.message, remedy=error.remedy) from error
    finally:
        db.close()
    return cast("KeyMade", _as_answered(schemas.KeyMade, views.key(record, now) | {"key": text}))


def _as_answered(model: type[BaseModel], data: dict[str, Any]) -> Any:
    """Return what the service would answer: the same fields, times as the same text."""
    return model.model_validate(data).model_dump(mode="json")


def _list_here(db_url: str | None) -> list[KeyOut]:
    from api import schemas, views
    from api.cli.database import open_migrated, settings_for
    from optimizer.clock import SystemClock
    from storage import keys

    db = open_migrated(settings_for(db_url))
    try:
        with db.read() as conn:
            now = SystemClock().now()
            return [_as_answered(schemas.KeyOut, views.key(k, now)) for k in keys.list_keys(conn)]
    finally:
        db.close()


def _revoke_here(key_id: str, db_url: str | None) -> KeyOut:
    from api import schemas, views
    from api.cli.database import open_migrated, settings_for
    from optimizer.clock import SystemClock
    from storage import keys
    from storage.errors import Missing

    db = open_migrated(settings_for(db_url))
    now = SystemClock().now()
    try:
        with db.write() as conn:
            gone = keys.revoke(conn, keys.get(conn, key_id).id, now)
            return cast("KeyOut", _as_answered(schemas.KeyOut, views.key(gone, now)))
    except Missing as error:
        raise NotFound(error.message, remedy=error.remedy) from error
    finally:
        db.close()
