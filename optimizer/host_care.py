"""The owner's hand on a host: the doctor, and putting home back without a study.

Decides when that is refused (a study works there). The steps on the host are `remote`'s.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict
from datetime import datetime

from optimizer.clock import Clock, Deadline
from optimizer.errors import Conflict, HostBusy
from optimizer.hosts import get
from optimizer.remote import connect, doctor, guard, home
from optimizer.remote.base import Finding, HomeServer
from optimizer.spec import HostEntry
from storage import hosts, leases
from storage.engine import Database
from storage.records import HostRecord

CHECK_TIMEOUT_S = 120.0
RESTORE_TIMEOUT_S = 1800.0
"""A large model loads for many minutes; who asks for home by hand is ready to wait for it."""


def check(db: Database, name: str, *, now: datetime) -> list[Finding]:
    """Examine a host and keep the findings; nothing is started or stopped there.

    Raises:
        NotFound: there is no such host.
    """
    record = get(db, name)
    entry = HostEntry.model_validate(record.entry)
    port = int((record.home or {}).get("port") or 0) or None
    link = connect.open_link(entry, known_host_key=record.host_key)
    try:
        findings = doctor.check(link, entry, port=port, deadline=Deadline.after(CHECK_TIMEOUT_S))
    finally:
        link.close()
    kept = {"checked_at": now.isoformat(), "findings": [asdict(f) for f in findings]}
    with db.write() as conn:
        hosts.update(conn, name, facts={**hosts.get(conn, name).facts, "doctor": kept})
    return findings


def restore(db: Database, name: str, *, clock: Clock) -> str:
    """Stop what Ratchet left on the host, put home back and prove that it answers; say what was done.

    Raises:
        NotFound: there is no such host.
        Conflict: no home is known.
        HostBusy: a study works there.
        HostError: the host cannot be reached, or home does not come back.
    """
    record = get(db, name)
    entry = HostEntry.model_validate(record.entry)
    server = known_home(record, entry)
    owner = f"restore-{uuid.uuid4().hex[:8]}"
    with db.write() as conn:
        fence = leases.claim(conn, name, owner, ttl_s=RESTORE_TIMEOUT_S, now=clock.now())
    if fence is None:
        raise HostBusy(name, f"a study works on host {name}", remedy="pause or stop it: that restores home as well")
    try:
        link = connect.open_link(entry, known_host_key=record.host_key)
        try:
            done = home.restore(
                link, server, run_dir=entry.run_dir, fence=fence, deadline=Deadline.after(RESTORE_TIMEOUT_S)
            )
            guard.disarm(link, run_dir=entry.run_dir, fence=fence)
        finally:
            link.close()
        with db.write() as conn:
            hosts.update(conn, name, needs_attention="")
    finally:
        with db.write() as conn:
            leases.release(conn, name, owner, fence)
    text = "home was serving already" if done.already_serving else f"home serves again after {done.elapsed_s:.0f} s"
    return f"{text}; {len(done.stopped)} leftover servers stopped" if done.stopped else text


def known_home(record: HostRecord, entry: HostEntry) -> HomeServer:
    """Return the server to put back: as last seen on the host, or as the host's entry gives it.

    Raises:
        Conflict: neither is known.
    """
    if record.home is not None:
        return HomeServer(**{**record.home, "argv": tuple(record.home.get("argv", ()))})
    if entry.home is not None:
        return home.from_entry(entry.home, default_port=0)
    remedy = "add a home section to the host's entry"
    raise Conflict(f"no original server is known for host {record.name}", remedy=remedy)
