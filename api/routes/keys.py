"""API keys: make, list, revoke; and who the caller is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter

from api import auth, views
from api.deps import Admin, Use, Viewer
from api.documented import problems
from api.idempotency import ApiRoute
from api.schemas import KeyIn, KeyMade, KeyOut, Page, WhoOut
from storage import keys

router = APIRouter(prefix="/api/v1", tags=["keys"], route_class=ApiRoute)


@router.post("/keys", status_code=201, response_model=KeyMade, responses=problems(409))
def create_key(body: KeyIn, use: Use, _: Admin) -> Any:
    """Make a key. Its text is in this answer and nowhere else."""
    now = use.now()
    expires_at = now + timedelta(days=body.expires_days) if body.expires_days else None
    record, text = auth.new_key(body.name, list(body.scopes), now=now, expires_at=expires_at)
    with use.db.write() as conn:
        keys.put(conn, record)
    use.keys_changed()
    return views.key(record, now) | {"key": text}


@router.get("/keys", response_model=Page[KeyOut], responses=problems())
def list_keys(use: Use, _: Admin) -> Any:
    """List all keys, usable or not."""
    with use.db.read() as conn:
        return {"items": [views.key(k, use.now()) for k in keys.list_keys(conn)], "next": None}


@router.delete("/keys/{key_id}", response_model=KeyOut, responses=problems(404))
def revoke_key(key_id: str, use: Use, _: Admin) -> Any:
    """Revoke a key (by id or name) at once; its row stays as history."""
    with use.db.write() as conn:
        record = keys.revoke(conn, keys.get(conn, key_id).id, use.now())
    use.keys_changed()
    return views.key(record, use.now())


@router.get("/me", response_model=WhoOut, responses=problems())
def who_am_i(who: Viewer) -> Any:
    """Say who the caller is and what it may do."""
    return {"name": who.name, "scopes": sorted(who.scopes), "via": who.via}
