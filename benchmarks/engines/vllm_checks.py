"""What a real vLLM does to Ratchet's knowledge of it: failures of real starts, orphans, signals, counters, read-back.

Each check starts servers as a trial does (over SSH, with the product's own scripts) and returns rows of the table.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from api.demo.assets import free_port
from benchmarks.engines.vllm_stage import ENGINE, START_S, Stage, answers, plan_of, server, wait_until
from optimizer import readiness
from optimizer.bench import measure, output_check, scrape
from optimizer.bench import workload as workloads
from optimizer.bench.base import RequestSample
from optimizer.clock import Deadline
from optimizer.engines.base import Config, LaunchPlan
from optimizer.errors import PortTaken, ServerFailed, WrongServer
from optimizer.http import Probe
from optimizer.remote import process
from optimizer.remote.base import HostLink, RunningServer

STOP_S = 60.0
GENERATED = 96
REPEATING = "Write this line six times: one red apple, two green pears, three yellow bananas."


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    check: str
    ok: bool
    seen: str


@dataclass(frozen=True)
class Failure:
    """A start that must fail: what is changed, and the labels that explain it right."""

    name: str
    changes: Config
    labels: tuple[str, ...]
    words: tuple[str, ...] = field(default=())
    """Further words of the command, for flags that the plan itself would refuse."""


REFUSED = ("invalid_flag", "unsupported_combination")
FAILURES = (
    Failure("unknown flag", {}, ("invalid_flag",), ("--no-such-flag", "1")),
    Failure("value that is no choice", {}, ("invalid_flag",), ("--kv-cache-dtype", "foo")),
    Failure("broken JSON", {}, ("invalid_flag",), ("--speculative-config", "{bad")),
    Failure("unknown key of speculation", {"speculative-config": '{"method": "ngram", "no_key": 1}'}, REFUSED),
    Failure("speculation without a length", {"spec-method": "ngram"}, REFUSED),
    Failure("draft model missing", {"spec-method": "draft_model", "spec-model": "/no/draft", "spec-tokens": 3},
            ("model_not_found", "draft_mismatch")),
    Failure("model missing", {"model": "/no/such/model"}, ("model_not_found",)),
    Failure("context beyond the model", {"max-model-len": 1_000_000}, REFUSED),
    Failure("batch below sequences", {"max-num-batched-tokens": 2, "max-num-seqs": 4}, REFUSED),
    Failure("KV cache too small", {"num-gpu-blocks-override": 2}, ("oom_kv_cache",)),
    Failure("KV cache above the memory", {"env.VLLM_CPU_KVCACHE_SPACE": "1000"}, ("oom_kv_cache",)),
    Failure("block size without a kernel", {"block-size": 7}, REFUSED),
    Failure("two ranks on one NUMA node", {"tensor-parallel-size": 2}, ("unsupported_combination",)),
)  # fmt: skip


def failing_start(stage: Stage, link: HostLink, case: Failure) -> Row:
    """Start what must fail and compare the explanation with the cause."""
    plan = with_words(plan_of(stage, case.changes, port=free_port()), case.words)
    with server(stage, link, plan) as started:
        try:
            wait_ready(link, started, plan)
        except ServerFailed as failure:
            found = failure.explanation
            keep(stage, case.name, failure.log_tail)
            ok = found.label in case.labels and (found.blame == "config") and not found.retry
            return Row(case.name, ok, f"{found.label}: {found.summary}; {found.remedy}")
    return Row(case.name, False, "it started")


def port_taken(stage: Stage, link: HostLink) -> Iterator[Row]:
    """A held port is refused before a start; a server that meets one all the same is explained."""
    with holder() as port:
        plan = plan_of(stage, {}, port=port)
        try:
            process.preflight(link, plan, run_dir=str(stage.folder / "run"), deadline=Deadline.after(60))
        except PortTaken as error:
            yield Row("port taken, seen before the start", True, error.message)
        else:
            yield Row("port taken, seen before the start", False, "the preflight let it pass")
    free = free_port()
    plan = plan_of(stage, {}, port=free)
    with server(stage, link, plan) as started, holder(free):
        try:
            wait_ready(link, started, plan)
        except WrongServer as error:
            yield Row("port taken during the start", True, error.message)
        except ServerFailed as failure:
            found = failure.explanation
            keep(stage, "port taken", failure.log_tail)
            yield Row("port taken during the start", found.label == "port_in_use" and found.retry, found.summary)
        else:
            yield Row("port taken during the start", False, "it started")


def speculating(stage: Stage, link: HostLink) -> Iterator[Row]:
    """One server that drafts by n-gram: read back, counters against its own log, then the API server is killed."""
    plan = plan_of(stage, {"spec-method": "ngram", "spec-tokens": 5, "spec-prompt-lookup-max": 4,
                           "spec-prompt-lookup-min": 2}, port=free_port())  # fmt: skip
    with server(stage, link, plan) as started:
        ready = wait_ready(link, started, plan)
        shown = {k: ready.running_config.get(k) for k in ("spec-method", "spec-tokens", "max-model-len")}
        yield Row("read back", not ready.differences and None not in shown.values(), f"{shown}, {ready.differences}")
        yield counted(link, started, plan)
        yield orphans(stage, link, started)


def counted(link: HostLink, started: RunningServer, plan: LaunchPlan) -> Row:
    """Compare the counters over some requests with what the server's log says of the same time."""
    url = f"http://127.0.0.1:{plan.port}"
    before = scrape.counters(url, "/metrics") or ""
    body = {"model": plan.served_model, "prompt": REPEATING, "max_tokens": GENERATED, "temperature": 0}
    with Probe(url) as probe:
        probe.post_json("/v1/completions", body, timeout_s=START_S)
    sample = ENGINE.speculation_from_counters(before, scrape.counters(url, "/metrics") or "")

    def from_log() -> int:
        text = process.read_log(link, started, limit=4_000_000).decode("utf-8", "replace")
        return sum(int(r.get("drafted", 0)) for r in ENGINE.telemetry(text) if r["kind"] == "spec")

    wait_until(lambda: from_log() >= (sample.drafted_tokens or 1), "the log's own figures", 120)
    length, drafted = sample.accept_len, from_log()
    ok = length is not None and length > 1 and drafted >= (sample.drafted_tokens or 0)
    told = f"accept length {length}, {sample.accepted_tokens}/{sample.drafted_tokens} accepted"
    return Row("counters and log", ok, f"{told}; the log counts {drafted} drafted")


def orphans(stage: Stage, link: HostLink, started: RunningServer) -> Row:
    """SIGKILL the API server: its engine lives on; the product must see the death, find the rest and end it."""
    os.kill(started.pid, signal.SIGKILL)
    wait_until(lambda: not process.status(link, started).alive, "the death", STOP_S)
    left = process.status(link, started).pids
    run_dir = str(stage.folder / "run")
    found = [r for r in process.find_runs(link, run_dir=run_dir) if r.run_id == started.run_id]
    proof = process.stop(link, started, run_dir=run_dir, fence=None, deadline=Deadline.after(120))
    alive = [pid for pid in left if is_alive(pid)]
    ok = bool(left and found) and not alive and set(left) <= set(proof.pids_signalled)
    told = f"{len(left)} processes left and found; ended in {proof.elapsed_s:.1f} s, SIGKILL {proof.killed}"
    return Row("orphans after SIGKILL", ok, f"{told}; still alive {alive}")


def compiled(stage: Stage, link: HostLink) -> Row:
    """Compiled against eager: whether the answers are the same, and that the output check sees it when they are not."""
    workload = workloads.from_spec({**stage.spec(1)["workload"], "max_tokens": 48})
    answers_of: list[list[RequestSample]] = []
    for changes in ({}, {"enforce-eager": None}):
        plan = plan_of(stage, changes, port=free_port())
        with server(stage, link, plan) as started:
            wait_ready(link, started, plan)
            measured = measure.measure(
                f"http://127.0.0.1:{plan.port}", engine=ENGINE, model=plan.served_model, workload=workload,
                path="direct", deadline=Deadline.after(START_S),
            )  # fmt: skip
        answers_of.append(list(measured.samples))
    eager, other = answers_of
    found = output_check.check(other, [eager], engine=ENGINE, config={})
    same = [a.text for a in eager] == [b.text for b in other]
    told = f"same answers {same}, agreement {found.agreement:.2f}, ok {found.ok}: {'; '.join(found.problems)}"
    return Row("compiled answers are checked", same == (found.agreement == 1.0), told)


def swallowed_sigterm(stage: Stage, link: HostLink) -> Row:
    """Stop a server while its engine starts: vLLM swallows that SIGTERM; the stop must end in time all the same."""
    plan = plan_of(stage, {}, port=free_port())
    with server(stage, link, plan) as started:
        wait_until(lambda: "Initializing a V1 LLM engine" in log_of(link, started), "the engine's start", START_S)
        proof = process.stop(
            link, started, run_dir=str(stage.folder / "run"), fence=None, deadline=Deadline.after(STOP_S)
        )
        ok = proof.elapsed_s < STOP_S and not process.status(link, started).pids and not answers(plan.port)
    return Row("SIGTERM while starting", ok, f"gone in {proof.elapsed_s:.1f} s, SIGKILL {proof.killed}")


def wait_ready(link: HostLink, started: RunningServer, plan: LaunchPlan) -> readiness.Ready:
    """Wait for the product's own proof of readiness."""
    return readiness.wait_until_ready(
        link, started, plan, engine_name="vllm", url=f"http://127.0.0.1:{plan.port}", timeout_s=START_S,
        check=lambda: None,
    )  # fmt: skip


def with_words(plan: LaunchPlan, words: tuple[str, ...]) -> LaunchPlan:
    """Return a plan with words at its end."""
    return LaunchPlan(**{**vars(plan), "argv": (*plan.argv, *words)})


def log_of(link: HostLink, started: RunningServer) -> str:
    """Return the log so far."""
    return process.read_log(link, started, limit=1_000_000).decode("utf-8", "replace")


def keep(stage: Stage, name: str, text: str) -> None:
    """Keep the log of a failure, for `ratchet explain`."""
    (stage.folder / f"failure-{name.replace(' ', '-')}.log").write_text(text, "utf-8")


def is_alive(pid: int) -> bool:
    """Say whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def holder(port: int = 0) -> Iterator[int]:
    """Listen on a port."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        yield int(taken.getsockname()[1])
