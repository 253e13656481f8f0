"""When a measurement may end because it cannot win any more. Pure.

Decides on the prompts that have ended, paired with the incumbent's same prompts; may be asked after every prompt as
often as one likes (the bound holds at all times at once). What is done with a partial result is `measure.py`'s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

ERROR = 0.05
"""Chance that a configuration that is no slower than the incumbent is ended early, over all looks of one trial."""
PROMPT_SD = 0.12
"""Least standard deviation assumed for the log ratio of one prompt: speculation helps one prompt and hurts another by
some ten per cent, and two or three prompts cannot show it. The sample's own deviation counts when it is larger."""
MIN_PROMPTS = 2


@dataclass(frozen=True)
class Standing:
    """How a running measurement stands against the incumbent, as ratios."""

    ratio: float
    optimistic: float
    """Upper end of the anytime-valid bound of the ratio over all prompts."""
    prompts: int
    hopeless: bool


def standing(tok_s: Mapping[str, float], incumbent: Mapping[str, float]) -> Standing:
    """Compare the prompts measured so far with the incumbent's; hopeless when even the optimistic end is below 1.

    The bound is the normal mixture bound (Robbins): for a sum of n terms with deviation s, the probability that
    |sum| ever exceeds s*sqrt((n+1)*(ln(n+1) + 2 ln(1/error))) is at most the error.
    """
    logs = [math.log(tok_s[p] / incumbent[p]) for p in tok_s if incumbent.get(p, 0) > 0 and tok_s[p] > 0]
    n = len(logs)
    if n == 0:
        return Standing(1.0, math.inf, 0, False)
    mean = sum(logs) / n
    own = math.sqrt(sum((v - mean) ** 2 for v in logs) / (n - 1)) if n > 1 else 0.0
    deviation = max(PROMPT_SD, own)
    radius = deviation * math.sqrt((n + 1) * (math.log(n + 1) + 2 * math.log(1 / ERROR))) / n
    optimistic = math.exp(mean + radius)
    return Standing(math.exp(mean), optimistic, n, n >= MIN_PROMPTS and optimistic < 1.0)
