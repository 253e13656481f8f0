"""The owner's hand on a host: the doctor, and putting home back without a study.

Decides when that is refused (a study works there). The steps on the host are `remote`'s.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict
from datetime import datetime
from typing import Any

from optimizer import home_row
from optimizer.clock import Clock, Deadline
from optimizer.engines.registry import find_engine
from optimizer.errors import Conflict, HostBusy
from optimizer.hosts import get
from optimizer.remote import connect, doctor, guard, home
from optimizer.remote.base import Finding, HomeServer, HostLink
from optimizer.run import port_of
from optimizer.spec import HostEntry, StudySpec
from storage import hosts, leases, shares, studies
from storage.engine import Database
from storage.records import HostRecord

CHECK_TIMEOUT_S = 120.0
MODEL_FLAGS = {"model", "model-path", "model-draft", "speculative-draft-model-path"}
RESTORE_TIMEOUT_S = 1800.0
"""A large model loads for many minutes; who asks for home by hand is ready to wait for it."""


def check(db: Database, name: str, *, now: datetime) -> list[Finding]:
    """Examine a host and keep the findings; nothing is started or stopped there.

    Raises:
        NotFound: there is no such host.
    """
    record = get(db, name)
    entry = HostEntry.model_validate(record.entry)
    study = _latest_study(db, name)
    link = connect.open_link(entry, known_host_key=record.host_key)
    try:
        findings = doctor.check(link, entry, **_asked_by(study), deadline=Deadline.after(CHECK_TIMEOUT_S))
    finally:
        link.close()
    kept = {"checked_at": now.isoformat(), "findings": [asdict(f) for f in findings]}
    with db.write() as conn:
        hosts.update(conn, name, facts={**record.facts, "doctor": kept})
    return findings


def _latest_study(db: Database, host: str) -> StudySpec | None:
    """The newest study of a host says which engine, port and model files matter there."""
    with db.read() as conn:
        found = studies.list_studies(conn, host=host, limit=1)
    return StudySpec.model_validate(found[0].spec) if found else None


def _asked_by(spec: StudySpec | None) -> dict[str, Any]:
    if spec is None:
        return {}
    models = [str(v) for k, v in spec.launch.flags.items() if k in MODEL_FLAGS]
    paths = [m for m in models if m.startswith(("/", "~", ".")) or m.endswith(".gguf")]  # others are names on a hub
    engine = find_engine(spec.engine)
    return {"port": port_of(spec), "paths": paths, "engine": engine, "command": tuple(spec.launch.command)}


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
    owner = f"restore-{uuid.uuid4().hex[:8]}"
    with db.write() as conn:
        fence = leases.claim(conn, name, owner, ttl_s=RESTORE_TIMEOUT_S, now=clock.now())
    if fence is None:
        raise HostBusy(name, f"a study works on host {name}", remedy="pause or stop it: that restores home as well")
    try:
        link = connect.open_link(entry, known_host_key=record.host_key)
        try:
            text = _put_back(link, entry, known_home(link, record, entry), fence)
        finally:
            link.close()
        with db.write() as conn:
            hosts.clear_mark(conn, name)
            shares.let_go(conn, name)
        return text
    finally:
        with db.write() as conn:
            leases.release(conn, name, owner, fence)


def known_home(link: HostLink, record: HostRecord, entry: HostEntry) -> HomeServer:
    """Return the server to put back: as last seen on the host, or as the host's entry gives it.

    Raises:
        Conflict: neither is known.
    """
    if record.home is not None:
        return home_row.load(link, record.home, run_dir=entry.run_dir)
    if entry.home is not None:
        return home.from_entry(entry.home, default_port=0)
    raise Conflict(
        f"no original server is known for host {record.name}", remedy="add a home section to the host's entry"
    )


def _put_back(link: HostLink, entry: HostEntry, server: HomeServer, fence: int) -> str:
    done = home.restore(link, server, run_dir=entry.run_dir, fence=fence, deadline=Deadline.after(RESTORE_TIMEOUT_S))
    guard.disarm(link, run_dir=entry.run_dir, fence=fence, deadline=Deadline.after(30))
    text = "home was serving already" if done.already_serving else f"home serves again after {done.elapsed_s:.0f} s"
    return f"{text}; {len(done.stopped)} leftover servers stopped" if done.stopped else text
