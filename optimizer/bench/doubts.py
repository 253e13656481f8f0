"""What makes a measurement doubtful without voiding it: told as warnings, each a sentence that stands alone.

Decides the limits beyond which a reader must know. What voids a measurement is `measure.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.bench.base import RequestSample, Workload
from optimizer.bench.derive import error_counts
from optimizer.bench.load import PhaseStats

LAG_P99_MS = 5.0
"""Above, times of single tokens are blurred by the client: a fast stream has 5 to 20 ms between tokens."""
BUSY_SHARE = 0.8
SLACK_TOKENS = 2
"""Usage counts the end-of-text token, and a server may hold back half a character: two tokens without an event."""
SLACK_SHARE = 0.02
CACHE_HIT_SHARE = 0.05
MOST_TEMPLATE_SHARE = 0.5
"""The start of the chat template is the same for all prompts, so equally many hits in each are no sign of a warm cache
unless they are most of it."""


def doubts(samples: Sequence[RequestSample], stats: PhaseStats, workload: Workload) -> list[str]:
    """Return the warnings of one level."""
    level = f"at concurrency {samples[0].concurrency}" if samples else ""
    found = [*_client(stats, level), *_tokens(samples, level), *_cache(samples, workload, level)]
    if causes := error_counts(samples):
        told = ", ".join(f"{n} {cause}" for cause, n in causes.items())
        found.append(
            f"{sum(causes.values())} of {len(samples)} requests failed {level} and are not in any average: {told}"
        )
    return found


def _client(stats: PhaseStats, level: str) -> list[str]:
    if stats.busy_share > BUSY_SHARE:
        return [f"the load client was the bottleneck {level}: busy {stats.busy_share:.0%} of the time"]
    if stats.lag_p99_ms > LAG_P99_MS:
        return [f"the load client was held up {level} ({stats.lag_p99_ms:.1f} ms at p99): this machine is busy"]
    return []


def _tokens(samples: Sequence[RequestSample], level: str) -> list[str]:
    good = [s for s in samples if s.ok]
    silent = sum(not s.usage_given for s in good)
    if silent:
        return [f"the server gave no usage for {silent} requests {level}: tokens are counted by streamed events"]
    said, shown = sum(s.output_tokens for s in good), sum(s.stream_tokens for s in good)
    odd = [s.prompt for s in good if _usage_is_odd(s)]
    if odd:
        names = ", ".join(dict.fromkeys(odd))
        return [f"usage and stream disagree {level} ({names}): usage says {said} tokens, the stream showed {shown}"]
    return []


def _usage_is_odd(sample: RequestSample) -> bool:
    """Say whether usage cannot be true of the stream.

    More tokens in the stream than in usage is never right. Fewer is right when events carry several tokens, which only
    shows where the server counts every event.
    """
    slack = SLACK_TOKENS + SLACK_SHARE * sample.output_tokens
    missing = sample.output_tokens - sample.stream_tokens
    return missing < -slack or (sample.tokens_exact and missing > slack)


def _cache(samples: Sequence[RequestSample], workload: Workload, level: str) -> list[str]:
    if workload.cache != "cold":
        return []
    known = [s for s in samples if s.ok and s.cached_tokens is not None and s.prompt_tokens > 0]
    hits = [s.cached_tokens or 0 for s in known]
    total = sum(s.prompt_tokens for s in known)
    beyond_template = sum(hits) - len(hits) * min(hits, default=0)
    if total and (beyond_template > CACHE_HIT_SHARE * total or sum(hits) > MOST_TEMPLATE_SHARE * total):
        return [f"{sum(hits)} of {total} prompt tokens came from the prefix cache {level} although it should be cold"]
    return []
