"""How sure one server start is of its own speed, by the repeats of its prompts. Pure.

Decides nothing of another start: starts differ by more than repeats do, and only `judging.py` compares them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from scipy.special import stdtrit

CONFIDENCE = 0.95


def speed_interval(tok_s: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the interval of the geometric mean over prompts, for these prompts on this start; empty without repeats.

    The prompts are given and not drawn, so only the scatter between repeats of one prompt counts (of the logs, alike
    for all prompts).
    """
    logs = [[math.log(v) for v in values] for values in tok_s.values() if values]
    means = [sum(row) / len(row) for row in logs]
    freedom = sum(len(row) - 1 for row in logs)
    if freedom < 1:
        return {}
    squares = sum((x - mean) ** 2 for row, mean in zip(logs, means, strict=True) for x in row)
    error = math.sqrt(squares / freedom * sum(1 / len(row) for row in logs)) / len(logs)
    half = -float(stdtrit(freedom, (1 - CONFIDENCE) / 2)) * error
    center = sum(means) / len(means)
    return {"output_tok_s_ci_low": math.exp(center - half), "output_tok_s_ci_high": math.exp(center + half)}
