"""Why a server of ours died: its log, its exit status, and what the kernel says, put before the engine's explanation.

Decides when a death is looked for and when the kernel is asked; what the texts mean is the engine's business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from optimizer.clock import Deadline, SystemClock
from optimizer.engines.base import Blame, Explanation, FailureContext, FlagValue, LaunchPlan, Phase
from optimizer.engines.registry import find_engine
from optimizer.errors import ServerFailed
from optimizer.remote import kernel, process
from optimizer.remote.base import HostLink, RunningServer, ServerStatus

POLL_S = 0.5
OF_THE_SETTINGS = frozenset({"kernel_not_compiled", "unsupported_model", "model_not_found"})
"""What is missing on the host or in the release: for a server that differs from one that ran there, by its settings."""
_IMPORTS = re.compile(r"\b(?:Import|ModuleNotFound)Error\b")


def raise_if_dead(
    link: HostLink,
    server: RunningServer,
    plan: LaunchPlan,
    pids: frozenset[int],
    *,
    engine_name: str,
    read_log: Callable[[], bytes],
    patience_s: float = 0.0,
) -> None:
    """Look whether a server that was ready, with these processes, still lives; `patience_s` waits for one that dies.

    Raises:
        ServerFailed: it is dead, or the kernel killed one of its workers.
    """
    end = Deadline.after(patience_s)
    while (status := process.status(link, server, log_limit=0, deadline=Deadline.after(30))).alive and not end.passed:
        SystemClock().sleep(POLL_S)
    gone = pids - set(status.pids)
    if status.alive and not gone:
        return
    text = read_log().decode("utf-8", "replace")
    if not status.alive:
        raise of(link, server, plan, engine_name, status, pids, text, phase="runtime")
    raise_if_killed(link, server, plan, engine_name, gone, text, phase="runtime")


def of(
    link: HostLink,
    server: RunningServer,
    plan: LaunchPlan,
    engine_name: str,
    status: ServerStatus,
    pids: Iterable[int],
    log_text: str,
    phase: Phase = "startup",
) -> ServerFailed:
    """Return why a server is dead that had these processes; the host is asked for what its kernel knows."""
    if status.rebooted:
        summary = f"{link.name} was restarted while the server ran on it"
        remedy = "it is started again; see why the host, or its container, was restarted"
        lost = Explanation("unknown", engine_name, summary, remedy, blame=Blame.INFRASTRUCTURE, retry=True)
        return ServerFailed(lost, log_tail=log_text)
    kernel_log = kernel.read(link, server, pids=pids)
    return explained(engine_name, log_text, status.exit_code, plan.expected, phase=phase, kernel_log=kernel_log)


def raise_if_killed(
    link: HostLink,
    server: RunningServer,
    plan: LaunchPlan,
    engine_name: str,
    gone: Iterable[int],
    log_text: str,
    phase: Phase = "startup",
) -> None:
    """Raise ServerFailed when the kernel killed one of the processes that are gone from a living server."""
    kernel_log = kernel.read(link, server, pids=gone)
    if kernel_log:
        failure = explained(engine_name, log_text, None, plan.expected, phase=phase, kernel_log=kernel_log)
        if failure.explanation.label == "killed_host_oom":
            raise failure


def beside_a_baseline(explanation: Explanation) -> Explanation:
    """Blame what a candidate lacks on its settings, since the baseline ran on the same host with what is there.

    A kernel, a package or a file that only this candidate needs must neither end the study nor be asked for again.
    """
    imports = explanation.label == "environment_broken" and any(map(_IMPORTS.search, explanation.evidence))
    if explanation.retry or not (imports or explanation.label in OF_THE_SETTINGS):
        return explanation
    summary = f"{explanation.summary} (the baseline runs here: only these settings need it)"
    return replace(explanation, summary=summary, blame=Blame.CONFIG, stop_study=False)


def explained(
    engine_name: str,
    log_text: str,
    exit_code: int | None,
    config: Mapping[str, FlagValue],
    *,
    phase: Phase = "startup",
    kernel_log: str = "",
) -> ServerFailed:
    """Explain a server's death from its log, its exit status and what the kernel says."""
    signal_number = exit_code - 128 if exit_code is not None and exit_code > 128 else None
    context = FailureContext(exit_code, signal_number, phase, config, kernel_log)
    explanation = find_engine(engine_name).explain(log_text, context)
    if explanation.label == "none":
        explanation = Explanation(
            "unknown",
            engine_name,
            f"the server ended with status {exit_code} and no error in its log",
            "read the log's last lines",
            last_lines(log_text),
            Blame.ENGINE,
        )
    evidence = (*explanation.evidence, *last_lines(kernel_log, 3))
    return ServerFailed(replace(explanation, evidence=evidence), log_tail=log_text, exit_code=exit_code)


def last_lines(text: str, count: int = 5) -> tuple[str, ...]:
    """Return the end of a log without empty lines, as evidence."""
    return tuple(line for line in text.splitlines()[-count:] if line.strip())
