"""What the samples of one level say: speeds, latencies, throughput, goodput. Pure functions over `RequestSample`.

Decides how each quantity is defined (docs/reference/workloads.md lists them). Failed requests are counted and never
averaged in. Which levels were run, and what the engine said beside it, is `measure.py`.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from optimizer.bench.base import RequestSample, Workload

MERGE_S = 0.0005
"""Tokens that arrive within this time came together: one step of the engine can yield several tokens, and engines cut
them into events differently. ITL is the time between such arrivals."""
STEADY_SHARE = 0.25
"""The steady window of a level must be at least this share of it, else the whole level is used."""
PERCENTILES = (50, 90, 99)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile by linear interpolation; `values` need not be sorted and must not be empty."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive values, 0 when there is none."""
    logs = [math.log(v) for v in values if v > 0]
    return math.exp(sum(logs) / len(logs)) if logs else 0.0


def blocks(samples: Sequence[RequestSample]) -> dict[str, list[float]]:
    """Return end-to-end tok/s by prompt, in order of the repeats."""
    by_prompt: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        if sample.ok and sample.end_to_end_tok_s > 0:
            by_prompt[sample.prompt].append(sample.end_to_end_tok_s)
    return dict(by_prompt)


def mean_speed(by_prompt: Mapping[str, Sequence[float]]) -> float:
    """Return the geometric mean over prompts of each prompt's geometric mean over repeats.

    The verdict averages the logarithms of the same blocks, so the ratio of two of these means is the ratio it judges.
    """
    return geometric_mean(geometric_mean(values) for values in by_prompt.values())


def decode_speed(samples: Sequence[RequestSample]) -> float:
    """Return decode tok/s over all streams: tokens after the first, over the time after the first; 0 if unknown."""
    good = [s for s in samples if s.decode_tok_s > 0]
    seconds = sum((s.output_tokens - 1) / s.decode_tok_s for s in good)
    return sum(s.output_tokens - 1 for s in good) / seconds if seconds > 0 else 0.0


def arrival_gaps_s(sample: RequestSample) -> list[float]:
    """Return the times between arrivals of tokens, those that came together counted as one arrival."""
    gaps = []
    last: float | None = None
    for time in sample.token_times_s:
        if last is None:
            last = time
        elif time - last >= MERGE_S:
            gaps.append(time - last)
            last = time
    return gaps


def level_metrics(samples: Sequence[RequestSample], workload: Workload) -> dict[str, float]:
    """Return every quantity of one level under its name with unit."""
    good = [s for s in samples if s.ok]
    metrics = {
        "requests": float(len(samples)),
        "errors": float(len(samples) - len(good)),
        "error_rate": (len(samples) - len(good)) / len(samples) if samples else 0.0,
        "output_tok_s": mean_speed(blocks(samples)),
        "decode_tok_s": decode_speed(samples),
        "output_tokens": float(sum(s.output_tokens for s in good)),
        "prompt_tokens": float(sum(s.prompt_tokens for s in good)),
    }
    open_s = sum(s.end_s - s.start_s for s in good)
    metrics["total_tok_s"] = metrics["output_tokens"] / open_s if open_s > 0 else 0.0
    ttft = [(s.first_token_s - s.start_s) * 1e3 for s in good if s.first_token_s is not None]
    latency = [(s.end_s - s.start_s) * 1e3 for s in good]
    itl = [gap * 1e3 for s in good for gap in arrival_gaps_s(s)]
    tpot = [1e3 / s.decode_tok_s for s in good if s.decode_tok_s > 0]
    for name, values in (("ttft", ttft), ("itl", itl), ("tpot", tpot), ("latency", latency)):
        if values:
            metrics |= {f"{name}_p{p}_ms": percentile(values, p) for p in PERCENTILES}
            metrics[f"{name}_mean_ms"] = sum(values) / len(values)
    metrics |= throughput(samples)
    metrics |= _goodput(good, samples, workload)
    cached = [s for s in good if s.cached_tokens is not None and s.prompt_tokens]
    if cached:
        metrics["cache_hit_rate"] = sum(s.cached_tokens or 0 for s in cached) / sum(s.prompt_tokens for s in cached)
    return metrics


def throughput(samples: Sequence[RequestSample]) -> dict[str, float]:
    """Return output tokens per second of the whole server in the steady window.

    The window begins when every stream of the level has its first token and ends when the first stream goes idle for
    want of requests; head and tail of a level are ramps. One stream has no ramps: its window is the level.
    """
    good = [s for s in samples if s.ok and s.token_times_s]
    if not good:
        return {"throughput_tok_s": 0.0, "steady_window_s": 0.0}
    start, end = min(s.start_s for s in samples), max(s.end_s for s in samples)
    streams = max(s.concurrency for s in samples)
    if streams > 1:
        firsts = [s.token_times_s[0] for s in sorted(good, key=lambda s: s.start_s)[:streams]]
        last_start = max(s.start_s for s in samples)
        low, high = max(firsts), min(s.end_s for s in samples if s.end_s >= last_start)
        if high - low >= STEADY_SHARE * (end - start):
            start, end = low, high
    inside = 0.0
    for sample in good:
        scale = sample.output_tokens / sample.stream_tokens if sample.stream_tokens else 1.0
        pairs = zip(sample.token_times_s, sample.chunk_tokens, strict=True)
        inside += scale * sum(count for time, count in pairs if start < time <= end)
    span = end - start
    return {"throughput_tok_s": inside / span if span > 0 else 0.0, "steady_window_s": span}


def _goodput(good: Sequence[RequestSample], samples: Sequence[RequestSample], workload: Workload) -> dict[str, float]:
    """Requests per second (and their share) that kept the limits; without limits every answered request counts."""
    if not samples:
        return {}
    kept = sum(_keeps_limits(s, workload) for s in good)
    span = max(s.end_s for s in samples) - min(s.start_s for s in samples)
    return {
        "goodput_req_s": kept / span if span > 0 else 0.0,
        "goodput_share": kept / len(samples),
        "request_s": len(good) / span if span > 0 else 0.0,
    }


def _keeps_limits(sample: RequestSample, workload: Workload) -> bool:
    limit = workload.slo_ttft_ms
    if limit is not None and (sample.first_token_s is None or (sample.first_token_s - sample.start_s) * 1e3 > limit):
        return False
    return workload.slo_itl_ms is None or (sample.decode_tok_s > 0 and 1e3 / sample.decode_tok_s <= workload.slo_itl_ms)


def error_counts(samples: Sequence[RequestSample]) -> dict[str, int]:
    """Return how many requests failed by cause (`http_500`, `stalled`, ...), the most frequent first."""
    causes = Counter(s.error.split(":", 1)[0] for s in samples if s.error)
    return dict(causes.most_common())
