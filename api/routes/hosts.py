"""Hosts: register, list, read, remove; the doctor, and putting the original server back by hand."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response

from api import etags, paging, views
from api.bodies import HOST_BODY, Document
from api.deps import Admin, Operator, Use, Viewer
from api.documented import problems
from api.idempotency import ApiRoute
from api.reports.export import finite
from api.schemas import HostCheckOut, HostOut, Page, RestoreOut
from optimizer import host_care
from optimizer import hosts as verbs
from optimizer.spec import parse_host
from storage import hosts, leases

router = APIRouter(prefix="/api/v1", tags=["hosts"], route_class=ApiRoute)


@router.post("/hosts", status_code=201, response_model=HostOut, responses=problems(409, 415), openapi_extra=HOST_BODY)
def create_host(body: Document, response: Response, use: Use, _: Admin, replace: bool = False) -> Any:
    """Register a host; with `replace=true` also over one of the same name that nobody uses."""
    record = verbs.register(use.db, parse_host(body), replace=replace, now=use.now())
    response.headers["Location"] = f"/api/v1/hosts/{record.name}"
    response.headers["ETag"] = etags.tag(record.version)
    return views.host(record, None, use.now())


@router.get("/hosts", response_model=Page[HostOut], responses=problems())
def list_hosts(use: Use, _: Viewer, limit: paging.Limit = paging.DEFAULT_LIMIT, after: paging.After = None) -> Any:
    """List hosts by name, with who uses them now."""
    now = use.now()
    with use.db.read() as conn:
        found = hosts.list_hosts(conn, limit=limit + 1, after=paging.decode(after))
        items = [views.host(h, leases.get(conn, h.name), now) for h in found[:limit]]
    return {"items": items, "next": paging.encode(items[-1]["name"]) if len(found) > limit else None}


@router.get("/hosts/{name}", response_model=HostOut, responses=problems(404))
def get_host(name: str, response: Response, use: Use, _: Viewer) -> Any:
    """Read a host."""
    with use.db.read() as conn:
        record = hosts.get(conn, name)
        lease = leases.get(conn, name)
    response.headers["ETag"] = etags.tag(record.version)
    return views.host(record, lease, use.now())


@router.delete("/hosts/{name}", status_code=204, responses=problems(404, 409, 412))
def delete_host(name: str, request: Request, use: Use, _: Admin) -> Response:
    """Forget a host that no study uses now."""
    with use.db.read() as conn:
        etags.check(request, hosts.get(conn, name).version)
    verbs.remove(use.db, name, now=use.now())
    return Response(status_code=204)


@router.post("/hosts/{name}/check", response_model=HostCheckOut, responses=problems(404, 409, 502, 504))
def check_host(name: str, use: Use, _: Operator) -> Any:
    """Run the doctor: every finding says what to do. Starts and stops nothing."""
    findings = host_care.check(use.db, name, now=use.now())
    return {
        "host": name,
        "ok": all(f.level != "error" for f in findings),
        "checked_at": use.now(),
        "findings": [finite(asdict(f)) for f in findings],
    }


@router.post("/hosts/{name}/restore", response_model=RestoreOut, responses=problems(404, 409, 502, 504))
def restore_host(name: str, use: Use, _: Operator) -> Any:
    """Stop what Ratchet started on the host and put the original server back; refused while a study works there."""
    detail = host_care.restore(use.db, name, clock=use.clock)
    return {"host": name, "restored": True, "detail": detail}
