"""Whether a server answers repeats of a prompt faster because it has seen them. Pure.

Some servers share drafts between requests (n-gram pools, suffix trees), so that salts against the prefix cache do not
make a repeat cold. What the engine accepted tells it exactly; speed must do where the engine does not say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from optimizer.bench.base import MeasuredEngine, RequestSample
from optimizer.bench.derive import blocks, geometric_mean
from optimizer.engines.base import SpeculationSample

LEAST_GAIN = 1.02
ERRORS = 3.0
"""By speed alone, repeats must be faster by that many standard errors over the prompts."""


def repeat_gain(engine: MeasuredEngine, samples: Sequence[RequestSample], spoken: SpeculationSample) -> float | None:
    """Return by what factor repeats are better than first runs, None when they are not beyond doubt.

    `spoken` is the acceptance of the whole level. A server that drafts nothing cannot learn: what then differs between
    repeats is the host.
    """
    first = _accept_len(engine, [s for s in samples if s.repeat == 0])
    later = _accept_len(engine, [s for s in samples if s.repeat > 0])
    if first is not None and later is not None:
        return later / first if later > LEAST_GAIN * first else None
    if spoken.drafted_tokens == 0 or (spoken.accept_len is not None and spoken.accept_len <= 1.0):
        return None
    return gain_by_speed(blocks(samples))


def _accept_len(engine: MeasuredEngine, samples: Sequence[RequestSample]) -> float | None:
    timings = [s.engine_timings for s in samples if s.ok and s.engine_timings]
    return engine.speculation_from_responses(timings).accept_len if timings else None


def gain_by_speed(tok_s: Mapping[str, Sequence[float]]) -> float | None:
    """Return how much faster later repeats are than first runs, by prompt; None unless it is beyond noise."""
    logs = [math.log(geometric_mean(v[1:]) / v[0]) for v in tok_s.values() if len(v) > 1]
    if len(logs) < 2:
        return None
    mean = sum(logs) / len(logs)
    error = math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1) / len(logs))
    return math.exp(mean) if mean > max(math.log(LEAST_GAIN), ERRORS * error) else None
