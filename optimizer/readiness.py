"""When a started server may be measured: alive, listening, ours, generating, and configured as planned.

Decides the proof; how a host is asked is `remote`, what the engine's endpoints are called is the engine's business.
Death, a stall, or a wrong server end the wait early, with the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from optimizer import deaths
from optimizer.clock import Deadline, SystemClock
from optimizer.engines.base import Blame, Explanation, FlagValue, LaunchPlan
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
ASK_KERNEL_S = 5.0
"""Between two questions to the kernel about processes that are gone: compilers come and go all the time."""
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
    pids: frozenset[int] = frozenset()
    """Its processes at that moment."""


class _Watch:
    """Follows one starting server: its log by offset, its stages, its processes, and when it last showed life."""

    def __init__(
        self,
        link: HostLink,
        server: RunningServer,
        plan: LaunchPlan,
        engine_name: str,
        on_stage: Callable[[str], None],
        on_log: Callable[[bytes], None],
    ) -> None:
        self._link = link
        self._server = server
        self._plan = plan
        self._engine_name = engine_name
        self._on_stage = on_stage
        self._on_log = on_log
        self.readiness = find_engine(engine_name).readiness(plan)
        self._hints = [re.compile(h, re.IGNORECASE) for h in self.readiness.log_hints]
        self._clock = SystemClock()
        self._started = self._clock.monotonic()
        self._last_life = self._started
        self._last_cpu = -1
        self._asked_kernel = self._started
        self._gone: set[int] = set()
        self._offset = 0
        self._tail = b""
        self.pids: frozenset[int] = frozenset()
        self.stages_s: dict[str, float] = {}

    @property
    def elapsed_s(self) -> float:
        return self._clock.monotonic() - self._started

    @property
    def stalled_s(self) -> float:
        return self._clock.monotonic() - self._last_life

    @property
    def text(self) -> str:
        return self._tail.decode("utf-8", "replace")

    def reached(self, stage: str) -> None:
        self.stages_s[stage] = round(self.elapsed_s, 3)

    def look(self) -> ServerStatus:
        """Poll once. Raises ServerFailed when the server is dead, or a worker was killed that it will wait for."""
        status = process.status(self._link, self._server, log_offset=self._offset, deadline=Deadline.after(30))
        self._see(status)
        if not status.alive:
            raise deaths.of(self._link, self._server, self._plan, self._engine_name, status, self.pids, self.text)
        self._look_for_killed_workers(status)
        return status

    def answer(self, ask: Callable[[], A | None], deadline: Deadline) -> A | None:
        """Return what the server answers; a question under which the way to the host broke is asked again."""
        while True:
            before = self._link.disturbances
            answer = ask()
            if answer is not None:
                return answer
            self.look()  # connects again if need be
            if self._link.disturbances == before:
                return None
            _raise_if_late(self, self._engine_name, deadline, STALL_S)

    def _see(self, status: ServerStatus) -> None:
        if status.log_chunk or status.cpu_ticks != self._last_cpu:
            self._last_life = self._clock.monotonic()
        self._last_cpu = status.cpu_ticks
        self._offset += len(status.log_chunk)
        self._tail = (self._tail + status.log_chunk)[-LOG_TAIL_BYTES:]
        if status.log_chunk:
            self._on_log(self._tail)
        text = status.log_chunk.decode("utf-8", "replace")
        for hint in self._hints:
            found = hint.search(text)
            stage = found.group(0)[:60] if found else ""
            if stage and stage not in self.stages_s:
                self.reached(stage)
                self._on_stage(stage)

    def _look_for_killed_workers(self, status: ServerStatus) -> None:
        """A launcher waits for ever for a rank that the kernel killed; compilers that ended are no reason to ask."""
        self._gone |= self.pids - set(status.pids)
        self.pids = frozenset(status.pids)
        if self._gone and self._clock.monotonic() - self._asked_kernel > ASK_KERNEL_S:
            self._asked_kernel = self._clock.monotonic()
            deaths.raise_if_killed(self._link, self._server, self._plan, self._engine_name, self._gone, self.text)
            self._gone.clear()


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
    watch = _Watch(link, server, plan, engine_name, on_stage, on_log)
    deadline = Deadline.after(timeout_s)
    with Probe(url) as probe:
        _wait_for_health(watch, probe, plan, engine_name, deadline, check, stall_s)
        watch.reached("healthy")
        _prove_ownership(watch, server, plan)
        _prove_generation(watch, probe, engine_name, deadline)
        watch.reached("generated")
        info_path = watch.readiness.info_path
        info = watch.answer(lambda: probe.get_json(info_path), deadline) if info_path else None
        running = _read_back(info, watch.text, engine_name, plan)
    return Ready(url, watch.stages_s, running, differences(plan.expected, running), watch.pids)


def _wait_for_health(
    watch: _Watch,
    probe: Probe,
    plan: LaunchPlan,
    engine_name: str,
    deadline: Deadline,
    check: Callable[[], None],
    stall_s: float,
) -> None:
    pause_s = FIRST_POLL_S
    while True:
        check()
        status = watch.look()
        if status.listening_pids:
            _refuse_strangers(status, plan)
            if probe.status(watch.readiness.health_path) == 200:
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
        "health_never_ready",
        engine_name,
        summary,
        remedy,
        deaths.last_lines(watch.text),
        Blame.INFRASTRUCTURE,
        retry=True,
    )
    raise ServerFailed(explanation, log_tail=watch.text)


def _prove_ownership(watch: _Watch, server: RunningServer, plan: LaunchPlan) -> None:
    status = watch.look()
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
            f"process {min(strangers) or 'that we may not see'} listens on port {plan.port}, and is not known as ours",
            remedy="stop that server or choose another port; a program with capabilities of its own hides from us",
        )


def _prove_generation(watch: _Watch, probe: Probe, engine_name: str, deadline: Deadline) -> None:
    timeout_s = min(GENERATION_TIMEOUT_S, max(1.0, deadline.left_s))
    path, body = watch.readiness.generate_path, watch.readiness.generate_body
    status_code = watch.answer(lambda: probe.post_json(path, body, timeout_s=timeout_s)[0], deadline)
    if status_code == 200:
        return
    watch.look()
    answered = "nothing" if status_code is None else f"status {status_code}"
    explanation = Explanation(
        "health_never_ready",
        engine_name,
        f"healthy, but a generation of a few tokens answered {answered}",
        "a server that cannot generate is not ready; see the log's last lines",
        deaths.last_lines(watch.text),
        Blame.CONFIG,
    )
    raise ServerFailed(explanation, log_tail=watch.text)


def _read_back(info: dict[str, Any] | None, log_text: str, engine_name: str, plan: LaunchPlan) -> dict[str, FlagValue]:
    engine = find_engine(engine_name)
    running = engine.running_from_log(log_text)
    if info is not None:
        if not engine.identity_matches(info, plan.served_model):
            raise WrongServer(
                f"the server on port {plan.port} does not carry our alias {plan.served_model}",
                remedy="another server answers on this port",
            )
        running |= engine.running_config(info)
    return running


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
