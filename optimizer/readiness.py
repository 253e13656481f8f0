"""When a started server may be measured: alive, listening, ours, generating, and configured as planned.

Decides the proof; how a host is asked is `remote`, what the engine's endpoints are called is the engine's business.
Death, a stall, or a wrong server end the wait early, with the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from optimizer.clock import Deadline, SystemClock
from optimizer.engines.base import Blame, Explanation, FailureContext, FlagValue, LaunchPlan, Readiness
from optimizer.engines.registry import find_engine
from optimizer.errors import ServerFailed, WrongServer
from optimizer.http import Probe
from optimizer.remote import process
from optimizer.remote.base import HostLink, RunningServer, ServerStatus

A = TypeVar("A")
FIRST_POLL_S = 0.05
LAST_POLL_S = 0.5
"""Polls start fast (a small model is ready in 0.2 s) and slow down to the twice a second that a human expects."""
STALL_S = 300.0
"""No log growth and no CPU time for this long is a hang (a leftover JIT lock, a rendezvous): longer than any silent
phase of a healthy start seen in public logs (weights from a cold disk use CPU time)."""
GENERATION_TIMEOUT_S = 120.0
LOG_TAIL_BYTES = 400_000


@dataclass(frozen=True)
class Ready:
    """What was proved, and how long each stage took (seconds since the launch)."""

    url: str
    stages_s: dict[str, float]
    running_config: dict[str, FlagValue]
    differences: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Flag: (planned, running); recorded as the effective configuration, never ignored."""


class _Watch:
    """Follows one starting server: its log by offset, its stages, and when it last showed life."""

    def __init__(self, hints: tuple[str, ...], on_log: Callable[[bytes], None]) -> None:
        self._on_log = on_log
        self._hints = [re.compile(h, re.IGNORECASE) for h in hints]
        self._clock = SystemClock()
        self._started = self._clock.monotonic()
        self._last_life = self._started
        self._last_cpu = -1
        self.offset = 0
        self.tail = b""
        self.stages_s: dict[str, float] = {}

    @property
    def elapsed_s(self) -> float:
        return self._clock.monotonic() - self._started

    @property
    def stalled_s(self) -> float:
        return self._clock.monotonic() - self._last_life

    def see(self, status: ServerStatus) -> list[str]:
        """Take one poll in; return the stages that were reached by it."""
        if status.log_chunk or status.cpu_ticks != self._last_cpu:
            self._last_life = self._clock.monotonic()
        self._last_cpu = status.cpu_ticks
        self.offset += len(status.log_chunk)
        self.tail = (self.tail + status.log_chunk)[-LOG_TAIL_BYTES:]
        if status.log_chunk:
            self._on_log(self.tail)
        text = status.log_chunk.decode("utf-8", "replace")
        reached = []
        for hint in self._hints:
            found = hint.search(text)
            if found and found.group(0) not in self.stages_s:
                self.stages_s[found.group(0)[:60]] = round(self.elapsed_s, 3)
                reached.append(found.group(0)[:60])
        return reached

    @property
    def text(self) -> str:
        return self.tail.decode("utf-8", "replace")


def wait_until_ready(
    link: HostLink,
    server: RunningServer,
    plan: LaunchPlan,
    *,
    engine_name: str,
    url: str,
    timeout_s: float,
    check: Callable[[], None],
    on_stage: Callable[[str], None] = lambda _: None,
    on_log: Callable[[bytes], None] = lambda _: None,
    stall_s: float = STALL_S,
) -> Ready:
    """Wait for the proof that `server` serves `plan`, at most `timeout_s` seconds.

    `check` is called between polls and may raise (a stop was asked); `on_stage` hears each log stage once, and
    `on_log` the end of the log whenever it has grown.

    Raises:
        ServerFailed: it died, hangs, or cannot generate; carries the explanation and the log's tail.
        WrongServer: somebody else answers on the port.
    """
    engine = find_engine(engine_name)
    readiness = engine.readiness(plan)
    watch = _Watch(readiness.log_hints, on_log)
    deadline = Deadline.after(timeout_s)
    with Probe(url) as probe:
        _wait_for_health(link, server, readiness, watch, probe, engine_name, plan, deadline, check, on_stage, stall_s)
        watch.stages_s["healthy"] = round(watch.elapsed_s, 3)
        _prove_ownership(link, server, watch, plan)
        asking = partial(_answer, link, server, watch, engine_name, deadline)
        _prove_generation(asking, link, server, readiness, watch, probe, engine_name, plan, deadline)
        watch.stages_s["generated"] = round(watch.elapsed_s, 3)
        running, differing = _read_back(asking, probe, readiness, engine_name, plan, watch.text)
    return Ready(url, watch.stages_s, running, differing)


def _wait_for_health(
    link: HostLink,
    server: RunningServer,
    readiness: Readiness,
    watch: _Watch,
    probe: Probe,
    engine_name: str,
    plan: LaunchPlan,
    deadline: Deadline,
    check: Callable[[], None],
    on_stage: Callable[[str], None],
    stall_s: float,
) -> None:
    pause_s = FIRST_POLL_S
    while True:
        check()
        status = process.status(link, server, log_offset=watch.offset, deadline=Deadline.after(30))
        for stage in watch.see(status):
            on_stage(stage)
        if not status.alive:
            raise death(engine_name, watch.text, status.exit_code, plan.expected)
        if status.listening_pids:
            _refuse_strangers(status, plan)
            if probe.status(readiness.health_path) == 200:
                return
        _raise_if_late(watch, engine_name, deadline, stall_s)
        SystemClock().sleep(pause_s)
        pause_s = min(LAST_POLL_S, pause_s * 1.3)


def _raise_if_late(watch: _Watch, engine_name: str, deadline: Deadline, stall_s: float) -> None:
    if watch.stalled_s > stall_s:
        summary = f"no log line and no CPU time for {watch.stalled_s:.0f} s while starting"
        remedy = "look for a hung rendezvous or a leftover lock of a JIT cache; it is retried once"
    elif deadline.passed:
        summary = f"not ready after {watch.elapsed_s:.0f} s"
        remedy = "raise budget.ready_timeout_s if this model needs longer to load"
    else:
        return
    explanation = Explanation(
        "health_never_ready", engine_name, summary, remedy, _last_lines(watch.text), Blame.INFRASTRUCTURE, retry=True
    )
    raise ServerFailed(explanation, log_tail=watch.text)


def _prove_ownership(link: HostLink, server: RunningServer, watch: _Watch, plan: LaunchPlan) -> None:
    status = process.status(link, server, log_offset=watch.offset, deadline=Deadline.after(30))
    watch.see(status)
    if not status.listening_pids:
        raise WrongServer(
            f"what answers on port {plan.port} is not the server that we started (run {server.run_id})",
            remedy="another server holds the port; see `ratchet host check`",
        )
    _refuse_strangers(status, plan)


def _refuse_strangers(status: ServerStatus, plan: LaunchPlan) -> None:
    """Raise WrongServer when any process that listens on the port is not ours (0 is one that we may not see)."""
    strangers = set(status.listening_pids) - set(status.pids)
    if strangers:
        raise WrongServer(
            f"process {min(strangers) or 'of another user'} listens on port {plan.port}, and we did not start it",
            remedy="stop that server or choose another port",
        )


def _answer(
    link: HostLink,
    server: RunningServer,
    watch: _Watch,
    engine_name: str,
    deadline: Deadline,
    ask: Callable[[], A | None],
) -> A | None:
    """Return what the server answers; a question under which the way to the host broke says nothing and is repeated."""
    while True:
        before = link.disturbances
        answer = ask()
        if answer is not None:
            return answer
        process.status(link, server, log_limit=0, deadline=Deadline.after(30))  # connects again if need be
        if link.disturbances == before:
            return None
        _raise_if_late(watch, engine_name, deadline, STALL_S)


def _prove_generation(
    asking: Callable[[Callable[[], int | None]], int | None],
    link: HostLink,
    server: RunningServer,
    readiness: Readiness,
    watch: _Watch,
    probe: Probe,
    engine_name: str,
    plan: LaunchPlan,
    deadline: Deadline,
) -> None:
    timeout_s = min(GENERATION_TIMEOUT_S, max(1.0, deadline.left_s))
    status_code = asking(
        lambda: probe.post_json(readiness.generate_path, readiness.generate_body, timeout_s=timeout_s)[0]
    )
    if status_code == 200:
        return
    status = process.status(link, server, log_offset=watch.offset, deadline=Deadline.after(30))
    watch.see(status)
    if not status.alive:
        raise death(engine_name, watch.text, status.exit_code, plan.expected)
    answered = "nothing" if status_code is None else f"status {status_code}"
    explanation = Explanation(
        "health_never_ready",
        engine_name,
        f"healthy, but a generation of a few tokens answered {answered}",
        "a server that cannot generate is not ready; see the log's last lines",
        _last_lines(watch.text),
        Blame.CONFIG,
    )
    raise ServerFailed(explanation, log_tail=watch.text)


def _read_back(
    asking: Callable[[Callable[[], dict[str, Any] | None]], dict[str, Any] | None],
    probe: Probe,
    readiness: Readiness,
    engine_name: str,
    plan: LaunchPlan,
    log_text: str,
) -> tuple[dict[str, FlagValue], dict[str, tuple[Any, Any]]]:
    engine = find_engine(engine_name)
    running = engine.running_from_log(log_text)
    info_path = readiness.info_path
    info = asking(lambda: probe.get_json(info_path)) if info_path is not None else None
    if info is not None:
        if not engine.identity_matches(info, plan.served_model):
            raise WrongServer(
                f"the server on port {plan.port} does not carry our alias {plan.served_model}",
                remedy="another server answers on this port",
            )
        running |= engine.running_config(info)
    return running, differences(plan.expected, running)


def differences(expected: Mapping[str, FlagValue], running: Mapping[str, FlagValue]) -> dict[str, tuple[Any, Any]]:
    """Return what runs otherwise than planned, by flag: (planned, running)."""
    planned = {flag: False if f"no-{flag}" in expected else expected.get(flag) for flag in running}
    return {
        flag: (planned[flag], value)
        for flag, value in running.items()
        if planned[flag] is not None and not same_value(planned[flag], value)
    }


def same_value(planned: Any, running: Any) -> bool:
    """Compare a planned with a running value as text or number, since engines answer in either."""
    if planned == running or str(planned).lower() == str(running).lower():
        return True
    try:
        return abs(float(planned) - float(running)) <= 1e-6 * max(1.0, abs(float(planned)))
    except (TypeError, ValueError):
        return False


def death(
    engine_name: str, log_text: str, exit_code: int | None, config: Mapping[str, FlagValue], phase: str = "startup"
) -> ServerFailed:
    """Explain a server's death from its log and exit status."""
    signal_number = exit_code - 128 if exit_code is not None and exit_code > 128 else None
    context = FailureContext(
        exit_code=exit_code, signal=signal_number, phase="runtime" if phase != "startup" else "startup", config=config
    )
    explanation = find_engine(engine_name).explain(log_text, context)
    if explanation.label == "none":
        explanation = Explanation(
            "unknown",
            engine_name,
            f"the server ended with status {exit_code} and no error in its log",
            "read the log's last lines",
            _last_lines(log_text),
            Blame.ENGINE,
        )
    return ServerFailed(explanation, log_tail=log_text, exit_code=exit_code)


def _last_lines(text: str, count: int = 5) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines()[-count:] if line.strip())
