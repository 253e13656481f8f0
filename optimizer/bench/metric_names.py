"""The names that an objective may put limits on. A limit on a metric that is never measured would exclude everything.

Decides what is a name; the quantities themselves are `derive.py`'s and `measure.py`'s.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from optimizer.errors import Problem

_TIMES = {f"{what}_{part}_ms" for what in ("ttft", "itl", "tpot", "latency") for part in ("p50", "p90", "p99", "mean")}
_SPECULATION = {"step_ms", "accept_len", "accept_rate", "drafted_tokens", "accepted_tokens", "verify_steps"}
BY_LEVEL = frozenset(
    _TIMES
    | {"output_tok_s", "decode_tok_s", "total_tok_s", "throughput_tok_s", "request_s", "goodput_req_s", "goodput_share"}
    | {"requests", "errors", "error_rate", "output_tokens", "prompt_tokens", "cache_hit_rate"}
    | {"client_lag_p99_ms", "client_lag_max_ms", "client_busy_share", "client_cpu_s"}
    | {"level_s", "steady_window_s", "peak_streams"}
)
"""Measured at every level of concurrency; `NAME@8` is that of the level with eight streams."""
_WHOLE = _SPECULATION | {"cuda_graph_share"}
KNOWN = BY_LEVEL | _WHOLE
_SAMPLED = re.compile(r"^(gpu\d*|engine)_[a-z0-9_]+_(mean|min|max)$")
"""Series over the measured window, as far as the engine and the host let them be read."""


def check_levels(weighed: Iterable[int], levels: Iterable[int]) -> list[Problem]:
    """Return a problem for each level that the objective weighs and the workload does not measure."""
    measured = list(levels)
    hint = f"workload.concurrency has {', '.join(map(str, measured))}"
    return [
        Problem(f"objective.levels.{level}", "is not measured", level, hint)
        for level in weighed
        if level not in measured
    ]


def check_limits(names: Iterable[str], levels: Iterable[int]) -> list[Problem]:
    """Return a problem for each name that no measurement with these levels of concurrency will have."""
    found = []
    measured = list(levels)
    for name in names:
        base, _, level = name.partition("@")
        path = f"objective.subject_to.{name}"
        if base not in KNOWN and not _SAMPLED.match(base):
            near = difflib.get_close_matches(base, KNOWN, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else "for example ttft_p99_ms, error_rate, throughput_tok_s@8"
            found.append(Problem(path, "no such metric", None, hint))
        elif level and (base in _WHOLE or level not in map(str, measured)):
            has = ", ".join(map(str, measured))
            found.append(Problem(path, "is not measured at this level", None, f"workload.concurrency has {has}"))
    return found
