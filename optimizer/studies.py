"""The state machine of a study: which moves exist, and the only functions that make them.

A user asks (start, pause, resume, stop); a worker answers by moving the study on. Asking twice is harmless, an
impossible move is a Conflict. What a study does while it runs is `phases.py`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from optimizer import giving_up
from optimizer.errors import Conflict, NotFound
from optimizer.spec import HostEntry, StudySpec, name_of, parse_study
from storage import errors as storage_errors
from storage import events, hosts, shares, studies, windows
from storage.engine import Database
from storage.records import HostRecord, StudyRecord


class StudyState(StrEnum):
    """Where a study is. `stopping` means that a pause or stop was asked and the server is being put back."""

    CREATED = "created"
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING_WINDOW = "waiting_window"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"
    NEEDS_ATTENTION = "needs_attention"


S = StudyState
ALLOWED: dict[StudyState, frozenset[StudyState]] = {
    S.CREATED: frozenset({S.QUEUED, S.FINISHED}),
    S.QUEUED: frozenset({S.RUNNING, S.STOPPING, S.PAUSED, S.WAITING_WINDOW, S.FINISHED, S.FAILED, S.NEEDS_ATTENTION}),
    S.RUNNING: frozenset({S.STOPPING, S.PAUSED, S.WAITING_WINDOW, S.FINISHED, S.FAILED, S.NEEDS_ATTENTION}),
    S.WAITING_WINDOW: frozenset({S.QUEUED, S.RUNNING, S.STOPPING, S.PAUSED, S.FINISHED, S.FAILED, S.NEEDS_ATTENTION}),
    S.STOPPING: frozenset({S.PAUSED, S.FINISHED, S.FAILED, S.NEEDS_ATTENTION}),
    S.PAUSED: frozenset({S.QUEUED, S.STOPPING, S.FINISHED}),
    S.FAILED: frozenset({S.QUEUED, S.STOPPING, S.FINISHED}),
    S.NEEDS_ATTENTION: frozenset({S.QUEUED, S.STOPPING, S.FINISHED}),
    S.FINISHED: frozenset(),
}
"""The one table of moves; property-tested against everything that moves a study."""

PAUSE_ASKED = "pause asked"
STOP_ASKED = "stop asked"
BY_USER = {PAUSE_ASKED: "paused by the user", STOP_ASKED: "stopped by the user"}
ACTIVE = frozenset({S.RUNNING, S.STOPPING})


def create(db: Database, spec: StudySpec, *, now: datetime) -> StudyRecord:
    """Store a new study in state `created`, and its host when the spec carries one inline.

    Raises:
        Conflict: the name is taken, or a host that a study uses now is described anew.
        NotFound: the named host is not registered, or there is no such window.
    """
    record = StudyRecord(
        id=uuid.uuid4().hex[:12],
        name=spec.name,
        state=S.CREATED,
        host=spec.host_name,
        engine=spec.engine,
        engine_version=spec.engine_version,
        spec=spec.model_dump(mode="json", exclude_none=False),
        fingerprint=fingerprint(spec),
        priority=spec.priority,
        created_at=now,
        updated_at=now,
    )
    try:
        with db.write() as conn:
            for host in spec.all_hosts:
                if isinstance(host, HostEntry):
                    _register(conn, host, now)
                elif hosts.find(conn, host) is None:
                    raise NotFound(f"no host {host!r}", remedy="register it with `ratchet host add FILE.yaml`")
            record = replace(record, window_id=window_id_of(conn, spec.window))
            studies.create(conn, record, hosts=[name_of(host) for host in spec.all_hosts])
            events.append(conn, record.id, "study", {"state": S.CREATED, "name": spec.name}, now)
    except storage_errors.Duplicate as error:
        raise Conflict(f"a study named {spec.name!r} exists", remedy="choose another name, or delete it") from error
    return record


def window_id_of(conn: Any, window: str | None) -> str | None:
    """Return the id of a window given by name or id; None for none. Raises NotFound."""
    try:
        return windows.get(conn, window).id if window else None
    except storage_errors.Missing as error:
        raise NotFound(f"no window {window!r}", remedy="`ratchet window list` shows all") from error


def change_in(
    conn: Any, record: StudyRecord, *, window: str | None = None, priority: int | None = None, now: datetime
) -> StudyRecord:
    """Give a study another window (an empty name: none, it works at any time) or priority, as part of a transaction.

    Raises:
        Conflict: it is finished.
        NotFound: there is no such window.
    """
    if record.state == S.FINISHED:
        raise Conflict(f"study {record.name} is finished", remedy="create a new one")
    fields: dict[str, Any] = {} if priority is None else {"priority": priority}
    if window is not None:
        fields |= {"window_id": window_id_of(conn, window), "spec": {**record.spec, "window": window or None}}
        look_anew(conn, [record.id], now)
    return studies.update(conn, record.id, **fields) if fields else record


def look_anew(conn: Any, study_ids: Iterable[str], now: datetime) -> None:
    """Queue those of these studies again that wait for a window, since it is another one or was switched.

    What was true of it before (done for this night, opens tomorrow) says nothing any more.
    """
    for study_id in study_ids:
        _queue(conn, study_id, {S.WAITING_WINDOW}, now)


def _queue(conn: Any, study_id: str, from_states: set[StudyState], now: datetime) -> bool:
    """Move a study to `queued`: it is to go on wherever it did not end with its result."""
    moved = move_in(conn, study_id, from_states, S.QUEUED, "", now)
    if moved:
        shares.begin_again(conn, study_id)
    return moved


def _register(conn: Any, entry: HostEntry, now: datetime) -> None:
    known = hosts.find(conn, entry.name)
    data = entry.model_dump(mode="json")
    if known is None:
        hosts.put(conn, HostRecord(name=entry.name, entry=data, created_at=now))
    elif known.entry != data:
        using = studies.list_studies(conn, limit=1, host=entry.name, state=ACTIVE)
        if using:
            raise Conflict(
                f"host {entry.name} is used by {using[0].name}, and described otherwise than here",
                remedy="wait until that study is through, or name the registered host only",
            )
        hosts.update(conn, known.name, entry=data)


def fingerprint(spec: StudySpec) -> str:
    """Hash what makes results comparable: engine, launch, space and workload (not names, budgets or hosts)."""
    parts = spec.model_dump(mode="json", include={"engine", "engine_version", "launch", "space", "workload"})
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def load_spec(record: StudyRecord) -> StudySpec:
    """Return the specification of a stored study."""
    return parse_study(record.spec)


def get(db: Database, study_id: str) -> StudyRecord:
    """Return a study by id or name. Raises NotFound."""
    try:
        with db.read() as conn:
            return studies.get(conn, study_id)
    except storage_errors.Missing as error:
        raise NotFound(f"no study {study_id!r}", remedy="`ratchet study list` shows all") from error


def start(db: Database, study_id: str, *, now: datetime) -> StudyRecord:
    """Queue a study for a worker; harmless when it is queued, waiting or running.

    Who starts a study that needed attention has looked at its hosts: their marks are taken away. With several hosts,
    those that were removed meanwhile are given up: the study goes on without them, and is judged by the others.
    """
    record = get(db, study_id)
    with db.write() as conn:
        current = studies.get(conn, record.id)
        if current.state in {S.QUEUED, S.RUNNING, S.WAITING_WINDOW}:
            return current
        if _queue(conn, current.id, {S.CREATED, S.PAUSED, S.FAILED, S.NEEDS_ATTENTION}, now):
            if current.state == S.NEEDS_ATTENTION:
                for part in shares.for_study(conn, current.id):
                    hosts.clear_mark(conn, part.host)
            giving_up.leave_out_removed(conn, current, now)
            return studies.get(conn, current.id)
    raise _impossible(current, S.QUEUED)


def resume(db: Database, study_id: str, *, now: datetime) -> StudyRecord:
    """Queue a paused or failed study again; it goes on where it was."""
    record = get(db, study_id)
    if record.state == S.CREATED:
        raise Conflict(f"study {record.name} was never started", remedy="start it")
    return start(db, study_id, now=now)


def pause(db: Database, study_id: str, *, now: datetime) -> StudyRecord:
    """Ask for a pause: the running trial ends at once, home is restored, and the study can be resumed."""
    record = get(db, study_id)
    with db.write() as conn:
        current = studies.get(conn, record.id)
        if current.state in {S.PAUSED, S.STOPPING}:
            return current
        if current.state not in {S.QUEUED, S.WAITING_WINDOW, S.RUNNING}:
            raise _impossible(current, S.PAUSED)
        return _end_by_word(conn, current, S.PAUSED, PAUSE_ASKED, now)


def stop(db: Database, study_id: str, *, now: datetime) -> StudyRecord:
    """Ask for the end: home is restored, the verdict is what the evidence allows, nothing more is tried."""
    record = get(db, study_id)
    with db.write() as conn:
        current = studies.get(conn, record.id)
        if current.state == S.FINISHED or (current.state == S.STOPPING and current.state_reason == STOP_ASKED):
            return current
        return _end_by_word(conn, current, S.FINISHED, STOP_ASKED, now)


def _end_by_word(conn: Any, study: StudyRecord, to: StudyState, asked: str, now: datetime) -> StudyRecord:
    """End a study by its owner's word: at once, or by a worker where one is at work or home is not back."""
    here = StudyState(study.state)
    if here in ACTIVE or shares.visit_again(conn, study.id):
        move_in(conn, study.id, {here}, S.STOPPING, asked, now)
    else:
        move_in(conn, study.id, {here}, to, BY_USER[asked], now)
    return studies.get(conn, study.id)


def _impossible(study: StudyRecord, to: StudyState) -> Conflict:
    return Conflict(f"study {study.name} is {study.state}: it cannot become {to}", remedy=_way_out(study.state))


def _way_out(state: str) -> str:
    return {
        S.FINISHED: "a finished study stays finished; create a new one, `known` results can be brought along",
        S.STOPPING: "wait until home is restored",
        S.CREATED: "start it first",
        S.PAUSED: "resume it first",
    }.get(StudyState(state), "look at the study's reason")


def move(db: Database, study_id: str, from_states: set[StudyState], to: StudyState, reason: str, now: datetime) -> bool:
    """Make one move of the table atomically, with its event. False when the study was in none of `from_states`."""
    with db.write() as conn:
        return move_in(conn, study_id, from_states, to, reason, now)


def move_in(conn: Any, study_id: str, from_states: set[StudyState], to: StudyState, reason: str, now: datetime) -> bool:
    """Make one move as part of a transaction."""
    legal = {s for s in from_states if to in ALLOWED[s] or s == to}
    moved = studies.move(conn, study_id, from_states=sorted(legal), to=to, reason=reason, now=now)
    if moved:
        if to is S.FINISHED:
            studies.update(conn, study_id, finished_at=now)
        events.append(conn, study_id, "study", {"state": to, "reason": reason}, now)
    return moved


def delete(db: Database, study_id: str) -> None:
    """Forget a study that is not active, and what the search knows of it. Raises NotFound, Conflict."""
    from optimizer.search.study import delete_study, name_in_optuna

    record = get(db, study_id)
    with db.read() as conn:
        _refuse_unless_idle(conn, record)
    # The search goes first: a study without one tells it everything again, and a search without a study stays for ever.
    delete_study(db.optuna_url, name_in_optuna(record.name, record.id))
    with db.write() as conn:
        _refuse_unless_idle(conn, studies.get(conn, record.id))
        studies.delete(conn, record.id)


def _refuse_unless_idle(conn: Any, study: StudyRecord) -> None:
    if study.state in ACTIVE or study.state in {S.QUEUED, S.WAITING_WINDOW}:
        raise Conflict(f"study {study.name} is {study.state}", remedy="stop it first")
    away = [part.host for part in shares.not_back(conn, study.id)]
    if away:
        raise Conflict(
            f"the original server of {', '.join(away)} is not proved back after study {study.name}",
            remedy=f"stop the study, or `ratchet host restore {away[0]}`: both put it back",
        )
