"""What is done to a host by its owner's word and not by a study: register, look up, forget.

Decides when such a word is refused (a study works there, or is about to). What touches the host is `host_care.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from optimizer.errors import Conflict, NotFound
from optimizer.spec import HostEntry
from optimizer.studies import StudyState
from storage import errors as storage_errors
from storage import hosts, leases, shares, studies
from storage.engine import Database
from storage.records import HostRecord

IN_USE = (StudyState.QUEUED, StudyState.RUNNING, StudyState.STOPPING, StudyState.WAITING_WINDOW)


def get(db: Database, name: str) -> HostRecord:
    """Return a registered host. Raises NotFound."""
    try:
        with db.read() as conn:
            return hosts.get(conn, name)
    except storage_errors.Missing as error:
        raise NotFound(f"no host {name!r}", remedy="`ratchet host list` shows all") from error


def register(db: Database, entry: HostEntry, *, replace: bool, now: datetime) -> HostRecord:
    """Store a host.

    Raises:
        Conflict: the name is taken (and `replace` is false), or a study uses the host now.
    """
    data = entry.model_dump(mode="json")
    with db.write() as conn:
        known = hosts.find(conn, entry.name)
        if known is not None and not replace:
            raise Conflict(
                f"a host named {entry.name!r} is registered",
                remedy="replace it (`ratchet host add --replace`), or remove it first",
            )
        if known is not None:
            _refuse_in_use(conn, entry.name)
        key = entry.ssh.host_key if entry.ssh else None
        return hosts.put(conn, HostRecord(name=entry.name, entry=data, created_at=now, host_key=key))


def remove(db: Database, name: str, *, now: datetime) -> None:
    """Forget a host, and what studies would have put back there: whoever says so gives it up.

    Raises:
        NotFound: there is none.
        Conflict: a study uses it, or a lease on it lasts.
    """
    get(db, name)
    with db.write() as conn:
        _refuse_in_use(conn, name)
        lease = leases.get(conn, name)
        if lease is not None and lease.until > now:
            raise Conflict(f"{lease.owner} works on host {name}", remedy="stop the study first")
        hosts.delete(conn, name)
        shares.let_go(conn, name)


def _refuse_in_use(conn: Any, name: str) -> None:
    using = [s.name for s in studies.list_studies(conn, limit=100, host=name, state=list(IN_USE))]
    if using:
        raise Conflict(f"host {name} is used by {', '.join(using[:5])}", remedy="stop the study first")
