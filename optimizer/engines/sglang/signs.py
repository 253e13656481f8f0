"""What in a log only this engine prints: pairs of weight (1 to 5) and pattern, capitals ignored."""

from __future__ import annotations

SIGNS = (
    (5, r"\bsglang\b|\bsgl[-_]kernel|sglang::"),
    (4, r"--mem-fraction-static|mem_fraction_static|server_args="),
    (4, r"\b(?:Decode|Prefill) batch\b|#running-req|fired up and ready"),
    (3, r"Load weight (?:begin|end)|Received sigquit|Scheduler hit an exception|Capture (?:\w+ )?cuda graph"),
    (2, r"\b(?:TP|DP|EP)\d+\]|token_to_kv_pool|warmup error|Memory pool end"),
    (4, r"launch_server\.py"),
    (2, r"launch_server|speculative[-_](?:eagle|num)[-_]"),
)
