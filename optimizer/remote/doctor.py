"""`ratchet host check`: everything that a night depends on, looked at once, each finding with what to do.

Decides which facts matter and how they are judged. Changes nothing on the host but creating the run directory; a fault
of the connection is a finding like any other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from optimizer.clock import Deadline
from optimizer.engines.base import EngineModule
from optimizer.errors import AuthenticationFailed, HostError, HostKeyRejected, NotFound, RatchetError
from optimizer.remote import findings, gpu, home, scripts
from optimizer.remote.base import Finding, HostLink
from optimizer.spec import HostEntry

CHECK_S = 60.0
RUN_WITH_TILDE = 'case $1 in "~/"*) r_p=$HOME/${1#??}; shift; exec "$r_p" "$@" ;; *) exec "$@" ;; esac'
SKIPPED_AFTER_SSH = ("host key", "shell", "tools", "run directory", "disk", "shm", "clock", "gpus", "port", "guard")


def check(
    link: HostLink,
    entry: HostEntry,
    *,
    port: int | None = None,
    paths: Sequence[str] = (),
    engine: EngineModule | None = None,
    command: Sequence[str] = (),
    deadline: Deadline | None = None,
) -> list[Finding]:
    """Look at a host and judge it; never raises for what it finds.

    `port` and `paths` (models) come from a study or the home entry; with `engine` and `command` (of `launch`) the
    installed version is asked too.
    """
    deadline = deadline or Deadline.after(CHECK_S)
    first = _connection(link, entry, deadline)
    if first[0].level == "error":
        return [*first, *(Finding(name, "skipped", "not looked at: no connection") for name in SKIPPED_AFTER_SSH)]
    port = port or (home.from_entry(entry.home, default_port=0).port if entry.home else 0)
    try:
        facts = _facts(link, entry, port, paths, deadline)
        gpus = gpu.snapshot(link, deadline) if "driver" in facts.words else []
    except RatchetError as error:
        return [*first, Finding("shell", "error", error.message, error.remedy)]
    return [
        *first,
        findings.shell(facts),
        findings.tools(facts),
        findings.run_dir(facts),
        *findings.room(facts),
        findings.clock(facts),
        findings.limits(facts),
        *findings.gpus(entry, facts, gpus),
        *findings.runs(entry, facts),
        *_port(link, entry, facts, port, deadline),
        findings.guard(entry, facts),
        *findings.paths(facts),
        *_engine(link, engine, command, deadline),
    ]


def _connection(link: HostLink, entry: HostEntry, deadline: Deadline) -> list[Finding]:
    if entry.connection == "local":
        return [Finding("ssh", "ok", "this machine, no SSH"), Finding("host key", "skipped", "no SSH")]
    began = time.monotonic()
    try:
        link.sh("exit 0", deadline=deadline)
    except HostKeyRejected as error:
        return [
            Finding("ssh", "error", "the host answers, its key is not trusted", error.remedy),
            Finding("host key", "error", error.message, error.remedy),
        ]
    except AuthenticationFailed as error:
        return [Finding("ssh", "error", error.message, error.remedy), Finding("host key", "ok", "trusted")]
    except HostError as error:
        return [Finding("ssh", "error", error.message, error.remedy)]
    took = time.monotonic() - began
    return [
        Finding("ssh", "ok", f"connected and logged in, {took:.2f} s", data={"connect_s": round(took, 3)}),
        Finding("host key", "ok", "trusted"),
    ]


def _facts(link: HostLink, entry: HostEntry, port: int, paths: Sequence[str], deadline: Deadline) -> findings.Facts:
    facts = findings.Facts(began_epoch=time.time())
    began = time.monotonic()
    done = scripts.call(link, "doctor", entry.run_dir, str(port), *paths, deadline=deadline)
    facts.took_s = time.monotonic() - began
    for line in done.text.splitlines():
        key, _, value = line.partition(" ")
        facts.words.setdefault(key, []).append(value)
    return facts


def _port(link: HostLink, entry: HostEntry, facts: findings.Facts, port: int, deadline: Deadline) -> Iterator[Finding]:
    if not port:
        yield Finding("port", "skipped", "no port known; a study or `home.url` names it")
        return
    found = [scripts.parse_process(line) for line in facts.words.get("listener", [])]
    if not found:
        yield Finding("port", "ok", f"{port} is free")
        return
    who = scripts.tell(found[0])
    if not entry.takeover and found[0].run_id is None:
        yield Finding(
            "port",
            "error",
            f"{port} is held by {who}",
            "set `takeover: true` if Ratchet may stop it and put it back, or choose another port",
        )
        return
    yield Finding("port", "ok", f"{port} is held by {who}")
    if entry.home is not None:
        yield Finding("home", "ok", "given in the host's file")
        return
    try:
        original = home.find(link, port, deadline, run_dir=entry.run_dir)
    except NotFound as error:
        yield Finding("home", "warning", error.message, error.remedy)
    except RatchetError as error:
        yield Finding("home", "error", error.message, error.remedy)
    else:
        program = PurePosixPath(original.argv[0]).name if original.argv else "?"
        how = f"unit {original.systemd_unit}" if original.systemd_unit else f"{program}, {len(original.argv)} arguments"
        yield Finding("home", "ok", f"can be put back: {how} (found in {original.found})")


def _engine(
    link: HostLink, engine: EngineModule | None, command: Sequence[str], deadline: Deadline
) -> Iterator[Finding]:
    if engine is None or not command:
        yield Finding("engine", "skipped", "no launch command known; a study names it")
        return
    argv = engine.version_argv(command)
    try:
        done = link.sh(RUN_WITH_TILDE, *argv, deadline=deadline)
    except HostError as error:
        yield Finding("engine", "error", error.message, error.remedy)
        return
    version = engine.parse_version(done.text + "\n" + done.error_text)
    if version is None:
        said = (done.error_text or done.text).strip().splitlines()[-1:] or ["nothing"]
        detail = f"{engine.name} does not tell its version (status {done.exit_code}): {said[0][:200]}"
        yield Finding("engine", "error", detail, f"run `{' '.join(argv)}` on the host; check launch.command")
    else:
        yield Finding("engine", "ok", f"{engine.name} {version}", data={"version": version})
