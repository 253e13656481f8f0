"""Measures one server: warm-up, then every level of the workload, with the engine's counters over the same windows.

Decides the order of things and what fails or voids a measurement. How load is made is `load.py`, how quantities are
defined `derive.py`, when a losing measurement ends early `early.py`, what is a win `verdict.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from optimizer.bench import early, scrape
from optimizer.bench.base import MeasuredEngine, Measurement, RequestSample, Series, Workload
from optimizer.bench.derive import blocks, decode_speed, error_counts, geometric_mean, level_metrics, mean_speed
from optimizer.bench.doubts import doubts
from optimizer.bench.interval import speed_interval
from optimizer.bench.learning import repeat_gain
from optimizer.bench.load import LoadClient, PhaseStats
from optimizer.bench.plan import level_requests, warmup_requests
from optimizer.bench.probe import Machine, Probe, Read, joined, summary
from optimizer.bench.remedies import remedy_for
from optimizer.clock import Deadline
from optimizer.engines.base import SpeculationSample
from optimizer.errors import BenchmarkFailed, RequestsFailed

FOREIGN_SHARE = 0.02
FOREIGN_TOKENS = 32
"""Tokens beyond our own that a counter may show: health probes of a few tokens, and rounding of what a share is."""
NO_COUNTERS = (
    "the server's counters ({path}) could not be read: whether others used it is not known, nor its queue; "
    "start it with its metrics switched on"
)


@dataclass(frozen=True)
class Level:
    """One level of concurrency as it went."""

    concurrency: int
    samples: tuple[RequestSample, ...]
    stats: PhaseStats
    before: str | None
    after: str | None
    ended_early: str = ""
    series: tuple[Series, ...] = ()


@dataclass
class _Run:
    """What stays the same during one measurement."""

    url: str
    engine: MeasuredEngine
    model: str
    workload: Workload
    deadline: Deadline
    cancelled: Callable[[], bool]
    headers: dict[str, str]
    salt: str
    machine: Machine | None
    warnings: list[str] = field(default_factory=list)


def measure(
    url: str,
    *,
    engine: MeasuredEngine,
    model: str,
    workload: Workload,
    path: str,
    incumbent: Mapping[str, float] | None = None,
    deadline: Deadline,
    cancelled: Callable[[], bool] | None = None,
    headers: Mapping[str, str] | None = None,
    salt: str = "",
    machine: Machine | None = None,
) -> Measurement:
    """Run the whole workload against the server at `url` and return what was seen.

    `path` (direct, tunnel, local) is kept with the result. `incumbent` (tok/s by prompt) lets the first level end as
    soon as it cannot catch up; later levels are then skipped. `salt` must differ between two cold measurements of one
    server start; restarts may and should share it, so that they are asked the same. `machine` is read while a level
    runs and told where each measured window begins and ends.

    Raises:
        Stopped: `cancelled` said so; no request is left running.
        RequestsFailed: too many requests failed, or the deadline passed before they ended.
        BenchmarkFailed: somebody else used the server meanwhile, or the load client died.
    """
    started_at, begun = datetime.now(UTC).isoformat(), time.monotonic()
    run = _Run(url, engine, model, workload, deadline, cancelled or (lambda: False), dict(headers or {}), salt, machine)
    levels: list[Level] = []
    with LoadClient(url, headers=run.headers) as client:
        for concurrency in workload.concurrency:
            levels.append(_level(run, client, concurrency, incumbent if not levels else None))
            if levels[-1].ended_early:
                break
    return _result(run, levels, path, incumbent or {}, started_at, time.monotonic() - begun)


def _level(run: _Run, client: LoadClient, concurrency: int, incumbent: Mapping[str, float] | None) -> Level:
    workload, engine = run.workload, run.engine
    names = {"engine": engine.name, "model": run.model, "salt": run.salt}
    warm = warmup_requests(workload, concurrency, **names)
    if warm:
        samples, _ = client.run(warm, workload, concurrency, deadline=run.deadline, cancelled=run.cancelled)
        _refuse_failures(samples, workload, "warm-up")
    flush = engine.flush_cache_request()
    if workload.cache == "cold" and flush and not scrape.flush_cache(run.url, flush, run.deadline, run.headers):
        run.warnings.append("the prefix cache could not be emptied; prompts are salted, so they miss it all the same")
    watch = _Watch(incumbent, len(workload.prompts))
    planned = level_requests(workload, concurrency, **names)
    probe = Probe(_readers(run), zero_s=client.origin_s)
    _mark(run)
    before = scrape.counters(run.url, engine.metrics_path(), run.headers)
    with probe:
        samples, stats = client.run(
            planned, workload, concurrency, deadline=run.deadline, cancelled=run.cancelled, on_sample=watch
        )
    after = scrape.counters(run.url, engine.metrics_path(), run.headers)
    _mark(run)
    _refuse_failures(samples, workload, f"level {concurrency}")
    if engine.metrics_path() and None in (before, after):
        run.warnings.append(NO_COUNTERS.format(path=engine.metrics_path()))
    if not stats.aborted:
        _refuse_foreign_load(before, after, samples)
    ended_early = watch.reason if stats.aborted else ""
    return Level(concurrency, tuple(samples), stats, before, after, ended_early, tuple(probe.series()))


def _readers(run: _Run) -> list[Read]:
    engine = [scrape.EngineWatch(run.url, run.engine, run.headers)] if run.engine.metrics_path() else []
    return [*engine, *([run.machine.read] if run.machine is not None else [])]


def _mark(run: _Run) -> None:
    if run.machine is not None:
        run.machine.mark()


class _Watch:
    """Sees each request of the first level as it ends, and says when to stop."""

    def __init__(self, incumbent: Mapping[str, float] | None, prompts: int) -> None:
        self._incumbent = incumbent or {}
        self._prompts = prompts
        self._tok_s: dict[str, float] = {}
        self.reason = ""

    def __call__(self, sample: RequestSample) -> bool:
        if not self._incumbent or not sample.ok or self.reason:
            return False
        self._tok_s.setdefault(sample.prompt, sample.end_to_end_tok_s)
        now = early.standing(self._tok_s, self._incumbent)
        if not now.hopeless or now.prompts >= self._prompts:
            return False
        self.reason = (
            f"after {now.prompts} of {self._prompts} prompts at {now.ratio - 1:+.1%} against the incumbent, "
            f"at best {now.optimistic - 1:+.1%}"
        )
        return True


def _refuse_failures(samples: Sequence[RequestSample], workload: Workload, where: str) -> None:
    failed = [s for s in samples if not s.ok]
    if not failed or (len(failed) / len(samples) <= workload.max_error_share and len(failed) < len(samples)):
        return
    causes = ", ".join(f"{count} {cause}" for cause, count in error_counts(samples).items())
    advice = remedy_for(str(failed[0].error))
    if len(failed) < len(samples):
        advice += "; the workload's max_error_share says how many may fail"
    raise RequestsFailed(
        f"{len(failed)} of {len(samples)} requests failed ({where}): {causes}; the first: {failed[0].error}",
        remedy=advice,
    )


def _refuse_foreign_load(before: str | None, after: str | None, samples: Sequence[RequestSample]) -> None:
    """Compare the server's own count of generated tokens with ours."""
    if before is None or after is None or not all(s.ok and s.usage_given for s in samples):
        return
    first, last = (scrape.counter_total(t, scrape.GENERATED_TOKENS) for t in (before, after))
    if first is None or last is None:
        return
    ours = sum(s.output_tokens for s in samples)
    foreign = last - first - ours
    if foreign > max(FOREIGN_TOKENS, FOREIGN_SHARE * ours):
        raise BenchmarkFailed(
            f"somebody else used the server while it was measured: it counts {last - first:.0f} generated tokens, "
            f"{ours} were ours",
            remedy="keep other clients away from the port while the study runs",
        )


def _speculation(engine: MeasuredEngine, level: Level) -> SpeculationSample:
    """Acceptance of one level: from the answers themselves where the engine tells it there, else from counters."""
    timings = [s.engine_timings for s in level.samples if s.ok and s.engine_timings]
    if timings:
        told = engine.speculation_from_responses(timings)
        if told.accept_len is not None or told.drafted_tokens is not None:
            return told
    if level.before is not None and level.after is not None and not level.stats.aborted:
        return engine.speculation_from_counters(level.before, level.after)
    return SpeculationSample()


def _result(
    run: _Run, levels: list[Level], path: str, incumbent: Mapping[str, float], started_at: str, bench_s: float
) -> Measurement:
    first = levels[0]
    metrics: dict[str, float] = {}
    warnings = list(run.warnings)
    for level in reversed(levels):
        own = level_metrics(level.samples, run.workload) | _client_metrics(level.stats) | summary(level.series)
        if level is not first:
            own |= speed_interval(blocks(level.samples))
        metrics |= {f"{name}@{level.concurrency}": value for name, value in own.items()}
        if level is first:
            metrics |= own
        warnings += doubts(level.samples, level.stats, run.workload)
    spoken = _speculation(run.engine, first)
    tok_s, counted = _blocks(run, first.samples, spoken, warnings)
    objective = {"output_tok_s": mean_speed(tok_s)} | speed_interval(tok_s)
    if first.ended_early:
        objective = {"output_tok_s": _extrapolate(tok_s, incumbent)}
    metrics |= objective | {f"{name}@{first.concurrency}": value for name, value in objective.items()}
    decode = decode_speed(counted)
    step_ms = 1e3 * spoken.accept_len / decode if spoken.accept_len and decode > 0 else None
    metrics |= _speculation_metrics(spoken, step_ms)
    return Measurement(
        workload_fingerprint=run.workload.fingerprint,
        path=path,
        tok_s=tok_s,
        metrics=metrics,
        samples=tuple(s for level in levels for s in level.samples),
        accept_len=spoken.accept_len,
        accept_rate=spoken.accept_rate,
        step_ms=step_ms,
        ended_early=bool(first.ended_early),
        early_reason=first.ended_early,
        warnings=tuple(dict.fromkeys(warnings)),
        started_at=started_at,
        bench_s=bench_s,
        speculation=spoken,
        series=joined([s for level in levels for s in level.series]),
    )


def _blocks(
    run: _Run, samples: Sequence[RequestSample], spoken: SpeculationSample, warnings: list[str]
) -> tuple[dict[str, list[float]], Sequence[RequestSample]]:
    """Return the verdict's blocks; repeats that were faster because the server had seen them do not count as cold."""
    gain = repeat_gain(run.engine, samples, spoken) if run.workload.cache == "cold" else None
    if gain is None:
        return blocks(samples), samples
    warnings.append(
        f"the server learns from earlier requests: repeats of a prompt went {gain - 1:+.1%} against its first run (a "
        "shared pool of drafts or a cache), so only first runs count as cold"
    )
    samples = [s for s in samples if s.repeat == 0]
    return blocks(samples), samples


def _extrapolate(tok_s: Mapping[str, Sequence[float]], incumbent: Mapping[str, float]) -> float:
    """Estimate the speed over all prompts from those measured: their ratio to the incumbent, times its mean."""
    ratio = geometric_mean(geometric_mean(v) / incumbent[p] for p, v in tok_s.items() if incumbent.get(p, 0) > 0)
    return ratio * geometric_mean(incumbent.values())


def _client_metrics(stats: PhaseStats) -> dict[str, float]:
    return {
        "client_lag_p99_ms": stats.lag_p99_ms,
        "client_lag_max_ms": stats.lag_max_ms,
        "client_busy_share": stats.busy_share,
        "client_cpu_s": stats.cpu_s,
        "level_s": stats.end_s - stats.start_s,
        "peak_streams": float(stats.peak_streams),
    }


def _speculation_metrics(spoken: SpeculationSample, step_ms: float | None) -> dict[str, float]:
    fields = {
        "step_ms": step_ms,
        "accept_len": spoken.accept_len,
        "accept_rate": spoken.accept_rate,
        "drafted_tokens": spoken.drafted_tokens,
        "accepted_tokens": spoken.accepted_tokens,
        "verify_steps": spoken.verify_steps,
    }
    return {name: float(value) for name, value in fields.items() if value is not None}
