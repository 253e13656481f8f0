"""The owner's hand on a host: the doctor, and putting home back without a study.

Decides when that is refused (a study works there). The steps on the host are `remote`'s.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict
from datetime import datetime

from optimizer.clock import Clock, Deadline
from optimizer.errors import Conflict, HostBusy, NeedsAttention
from optimizer.hosts import get
from optimizer.http import Probe
from optimizer.remote import connect, doctor, guard, home, process
from optimizer.remote.base import Finding, HomeServer, HostLink
from optimizer.spec import HostEntry
from storage import hosts, leases
from storage.engine import Database
from storage.records import HostRecord

CHECK_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 180.0
POLL_S = 1.0
RESTORE_TIMEOUT_S = 1800.0
"""A large model loads for many minutes; who asks for home by hand is ready to wait for it."""


def check(db: Database, name: str, *, now: datetime) -> list[Finding]:
    """Examine a host and keep the findings; nothing is started or stopped there.

    Raises:
        NotFound: there is no such host.
    """
    record = get(db, name)
    entry = HostEntry.model_validate(record.entry)
    findings = doctor.check(entry, known_host_key=record.host_key, deadline=Deadline.after(CHECK_TIMEOUT_S))
    kept = {"checked_at": now.isoformat(), "findings": [asdict(f) for f in findings]}
    with db.write() as conn:
        hosts.update(conn, name, facts={**record.facts, "doctor": kept})
    return findings


def restore(db: Database, name: str, *, clock: Clock) -> str:
    """Stop what Ratchet left on the host, put home back and prove that it answers; say what was done.

    Raises:
        NotFound: there is no such host.
        Conflict: no home is known, or a study works there.
        NeedsAttention: home was started and does not answer.
        HostError: the host cannot be reached or a stop could not be proved.
    """
    record = get(db, name)
    entry = HostEntry.model_validate(record.entry)
    server = known_home(record, entry)
    owner = f"restore-{uuid.uuid4().hex[:8]}"
    with db.write() as conn:
        fence = leases.claim(conn, name, owner, ttl_s=RESTORE_TIMEOUT_S, now=clock.now())
    if fence is None:
        raise HostBusy(name, f"a study works on host {name}", remedy="pause or stop it: that restores home as well")
    link = connect.open_link(entry, known_host_key=record.host_key)
    try:
        done = _put_back(link, entry, server, fence, clock)
        with db.write() as conn:
            hosts.update(conn, name, needs_attention="")
        return done
    finally:
        link.close()
        with db.write() as conn:
            leases.release(conn, name, owner, fence)


def known_home(record: HostRecord, entry: HostEntry) -> HomeServer:
    """Return the server to put back: as last seen on the host, or as the host's entry gives it.

    Raises:
        Conflict: neither is known.
    """
    if record.home is not None:
        return HomeServer(**{**record.home, "argv": tuple(record.home.get("argv", ()))})
    if entry.home is not None:
        given = entry.home
        return HomeServer(
            argv=tuple(given.command), env=dict(given.env), cwd=given.cwd, systemd_unit=given.systemd_unit
        )
    raise Conflict(
        f"no original server is known for host {record.name}", remedy="add a home section to the host's entry"
    )


def _put_back(link: HostLink, entry: HostEntry, server: HomeServer, fence: int, clock: Clock) -> str:
    stopped = 0
    for leftover in process.find_runs(link, run_dir=entry.run_dir, deadline=Deadline.after(60)):
        if not leftover.run_id.startswith(home.RUN_ID_PREFIX):
            process.stop(link, leftover, run_dir=entry.run_dir, fence=fence, deadline=Deadline.after(STOP_TIMEOUT_S))
            stopped += 1
    deadline = Deadline.after(RESTORE_TIMEOUT_S)
    if server.port and process.listeners(link, server.port, deadline=Deadline.after(30)):
        text = "home serves already"
    else:
        home.start(link, server, run_dir=entry.run_dir, fence=fence, deadline=deadline)
        text = "home was started and answers"
    _wait_for_home(link, entry, server, clock, deadline)
    guard.disarm(link, run_dir=entry.run_dir, fence=fence, deadline=Deadline.after(30))
    return f"{text}; {stopped} leftover servers stopped" if stopped else text


def _wait_for_home(link: HostLink, entry: HostEntry, server: HomeServer, clock: Clock, deadline: Deadline) -> None:
    if not server.port:
        return
    tunnel = link.open_tunnel(server.port, address=entry.http.address)
    try:
        with Probe(tunnel.url) as probe:
            while not deadline.passed:
                if probe.status(server.health_path) == 200:
                    return
                clock.sleep(POLL_S)
    finally:
        tunnel.close()
    raise NeedsAttention(
        entry.name,
        f"home was started and does not answer on port {server.port}",
        remedy=f"look at its log under {entry.run_dir} on the host",
    )
