"""The owner's own server (home): taken over once, put back always, or replaced by the proven winner.

Decides when home is stopped and started, and what counts as "home serves again". How a process is found, stopped or
started is `remote.home` and `remote.process`; the dead man's switch on the host is `remote.guard`.
"""

from __future__ import annotations

from typing import Any

import structlog

from optimizer import evidence, home_row
from optimizer.clock import Deadline
from optimizer.errors import NeedsAttention, NotFound, PortTaken, RatchetError
from optimizer.http import Probe
from optimizer.plan import argv_to_keep, plan_server
from optimizer.remote import gpu, guard, home, process
from optimizer.remote.base import HomeServer
from optimizer.run import StudyRun
from storage import hosts, shares
from storage.errors import StorageError

log = structlog.get_logger(__name__)

STOP_TIMEOUT_S = 180.0
START_RESERVE_S = 120.0
"""On top of three times what the plain server needed so far, before home is called not back."""
GENERATION_TIMEOUT_S = 120.0
MISSED_RENEWALS = 3
"""A shorter grace than this many renewals would take a late one for a death."""


def take_over(run: StudyRun) -> None:
    """Find who serves on the host, remember home, arm the guard, and stop home; leftovers of our own runs are stopped.

    Raises:
        PortTaken: a foreign server holds the port and the host's entry does not allow a takeover.
        NeedsAttention: a stop could not be proved.
    """
    report_guard(run)
    stop_leftovers(run)
    run.home = find_home(run)
    remember_home(run, run.home)
    if run.home is None:
        run.say("note", text=f"nothing serves on port {run.port} of {run.host.name}: nothing will be put back")
        return
    arm_guard(run)
    if process.listeners(run.link, run.port, deadline=Deadline.after(30)):
        run.say("home", state="stopping", command=" ".join(run.home.argv) or run.home.systemd_unit)
        home.stop(
            run.link, run.home, run_dir=run.host.run_dir, fence=run.lease.fence, deadline=Deadline.after(STOP_TIMEOUT_S)
        )
    run.say("home", state="stopped")
    warn_of_foreign_load(run)


def warn_of_foreign_load(run: StudyRun) -> None:
    """Name who else computes on the host's GPUs, now that nothing of ours or of home does; nobody is touched."""
    for index, who, mib in gpu.users(run.link, run.host.gpus):
        run.warn(f"GPU {index} is also used by {who}, {mib} MiB: Ratchet leaves it alone, and measurements may suffer")


def report_guard(run: StudyRun) -> None:
    """Show what the guard did on the host while nobody was looking, once."""
    with run.db.read() as conn:
        record = hosts.get(conn, run.host.name)
    seen = record.facts.get("guard_seen")
    entries = guard.history(run.link, run_dir=run.host.run_dir, deadline=Deadline.after(30))
    fresh = entries[entries.index(seen) + 1 :] if seen in entries else entries  # the host's clock may have been set
    for entry in fresh:
        if entry.get("event") not in {"armed", "done"}:
            run.say("guard", **{str(k): v for k, v in entry.items()})
    if fresh:
        facts = {**record.facts, "guard_seen": fresh[-1]}
        with run.db.write() as conn:
            hosts.update(conn, run.host.name, facts=facts)


def stop_leftovers(run: StudyRun) -> None:
    """Stop trial servers of an earlier, interrupted run of Ratchet that are still alive; home is left alone."""
    stopped = home.stop_trials(
        run.link, run_dir=run.host.run_dir, fence=run.lease.fence, deadline=Deadline.after(STOP_TIMEOUT_S)
    )
    for run_id in stopped:
        run.say("note", text=f"stopped a server of an interrupted trial (run {run_id})")


def find_home(run: StudyRun) -> HomeServer | None:
    """Return the server to put back: what the study stored, what the host's entry gives, or who listens on the port."""
    stored = stored_home(run)
    if stored is not None:
        return changed_home(run, stored) or stored
    listeners = process.listeners(run.link, run.port, deadline=Deadline.after(30))
    if listeners and not run.host.takeover:
        who = listeners[0]
        raise PortTaken(
            run.host.name,
            f"process {who.pid} ({who.command[:80]}) serves on port {run.port}",
            remedy="set `takeover: true` in the host's entry to let Ratchet stop it and put it back",
        )
    if run.host.home is not None:
        return home.from_entry(run.host.home, default_port=run.port)
    if not listeners:
        return None
    return home.find(run.link, run.port, Deadline.after(30), run_dir=run.host.run_dir)


def changed_home(run: StudyRun, stored: HomeServer) -> HomeServer | None:
    """Return the server that its owner has put in home's place since, with another command, environment or user."""
    if stored.found != "proc" or not run.host.takeover:
        return None
    try:
        seen = home.find(run.link, run.port, Deadline.after(30), run_dir=run.host.run_dir)
    except (NotFound, PortTaken):  # nothing serves, or it is what `home.stop` refuses by itself
        return None
    same = (seen.argv, seen.env, seen.cwd, seen.user) == (stored.argv, stored.env, stored.cwd, stored.user)
    if same and not seen.systemd_unit:
        return None
    run.say("note", text="the original server was changed by its owner: it is put back as it is now")
    return seen


def remember_home(run: StudyRun, server: HomeServer | None) -> None:
    """Store home with the study and the host before anything is touched, and that the host is not as it was.

    Also where nothing served: whatever ends the study must then go there, because a trial may be left over.
    """
    if server is None:
        with run.db.write() as conn:
            shares.update(conn, run.study.id, run.host.name, taken=True)
        return
    row = home_row.keep(run.link, server, run_dir=run.host.run_dir)
    with run.db.write() as conn:
        shares.update(conn, run.study.id, run.host.name, home=row, taken=True)
        hosts.update(conn, run.host.name, home=row)
    if run.host.name == run.study.host:
        run.update(home=row)


def stored_home(run: StudyRun) -> HomeServer | None:
    """Return the home that this study stored on this host, if any."""
    with run.db.read() as conn:
        row = shares.get(conn, run.study.id, run.host.name).home
    return home_row.load(run.link, row, run_dir=run.host.run_dir) if row else None


def arm_guard(run: StudyRun) -> None:
    """Put the dead man's switch on the host and keep it fed by the lease's renewals."""
    if run.home is None or not run.host.guard.enabled:
        return
    server = run.home
    grace_s = max(run.host.guard.grace_s, MISSED_RENEWALS * run.lease.renew_s)

    def arm() -> None:
        guard.arm(
            run.link,
            server,
            run_dir=run.host.run_dir,
            fence=run.lease.fence,
            deadline_at=run.lease.ends_at,
            grace_s=grace_s,
            deadline=Deadline.after(60),
        )

    def renew() -> None:
        try:
            guard.renew(
                run.link,
                run_dir=run.host.run_dir,
                fence=run.lease.fence,
                deadline_at=run.lease.ends_at,
                grace_s=grace_s,
                deadline=Deadline.after(30),
            )
        except NotFound:  # somebody removed the run directory, and the guard in it
            arm()

    def keep_alive() -> None:
        try:
            renew()
        except RatchetError as error:
            log.warning("guard.renew_failed", host=run.host.name, error=error.message)

    arm()
    run.lease.on_renew = keep_alive
    run.say("guard", state="armed", grace_s=grace_s)


def finish(run: StudyRun, *, finished: bool) -> str:
    """Leave the host serving: home again, or the winner when the study is done and its owner said `adopt`.

    Returns why home serves although the winner should; empty when what should serve does.

    Raises:
        NeedsAttention: what should serve does not; the host's owner must look.
    """
    run.lease.confirm()
    server = run.home or stored_home(run)
    adopted = winner_to_adopt(run) if finished else None
    why_not = ""
    if adopted is not None:
        note(run, "adopting")
        try:
            serve(run, adopted)
        except NeedsAttention as error:
            if server is None:
                raise
            adopted, why_not = None, f"the winner is not adopted, since {error.message}"
    if adopted is None and server is not None:
        note(run, "starting")
        serve(run, server)
    elif adopted is None:
        stop_leftovers(run)
        return ""
    run.lease.on_renew = None
    if run.host.guard.enabled and server is not None:
        guard.disarm(run.link, run_dir=run.host.run_dir, fence=run.lease.fence, deadline=Deadline.after(30))
    note(run, "adopted" if adopted else "restored", taken=False)
    return why_not


def serve(run: StudyRun, server: HomeServer) -> None:
    """Start a server that stays, unless it serves already; whatever else of ours runs is stopped first."""
    home.restore(
        run.link,
        server,
        run_dir=run.host.run_dir,
        fence=run.lease.fence,
        deadline=Deadline.after(patience_s(run)),
        probe=lambda _: generates(run),
    )


def note(run: StudyRun, state: str, **fields: Any) -> None:
    """Write down how far home is. Nothing here may keep home down: a full disk or a lost database is only logged."""
    try:
        with run.db.write() as conn:
            if fields:
                shares.update(conn, run.study.id, run.host.name, **fields)
        run.say("home", state=state)
    except StorageError as error:
        log.warning("home.not_noted", host=run.host.name, state=state, error=error.message)


def patience_s(run: StudyRun) -> float:
    """Seconds after which a server is called not back: three times the longest start so far, and a reserve."""
    try:
        seen = evidence.read(run).longest_start_s
    except StorageError:
        seen = None
    return 3 * (seen or evidence.UNKNOWN_S) + START_RESERVE_S


def winner_to_adopt(run: StudyRun) -> HomeServer | None:
    """Return the proven winner as a server to keep, if there is one and its owner wants it."""
    verdict = run.study.verdict or {}
    if run.spec.on_finish != "adopt" or verdict.get("outcome") != "win":
        return None
    plan = plan_server(run, verdict["params"]).plan
    return HomeServer(argv=argv_to_keep(plan, run), env=dict(plan.env), cwd=plan.cwd, port=plan.port, found="adopted")


def generates(run: StudyRun) -> bool:
    """Say whether the server on the port answers its health check and a real generation."""
    url, _ = run.base_url()
    readiness = run.engine.readiness(plan_server(run, None).plan)
    with Probe(url) as probe:
        if probe.status(readiness.health_path) != 200:
            return False
        body = {k: v for k, v in readiness.generate_body.items() if k != "model"}
        status, _ = probe.post_json(readiness.generate_path, body, timeout_s=GENERATION_TIMEOUT_S)
    return status == 200
