"""Small requests beside the load: counters before and after a window, gauges within it, emptying a cache. Blocking.

Decides what an answer of the counters endpoint is worth; a server without one is measured all the same.
"""

from __future__ import annotations

import http.client
import math
import re
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from optimizer.bench.base import MeasuredEngine
from optimizer.clock import Deadline

TIMEOUT_S = 10.0
GENERATED_TOKENS = ("llamacpp:tokens_predicted_total", "sglang:generation_tokens_total", "vllm:generation_tokens_total")
"""Counters of all output tokens, whoever asked for them."""
GAUGES: dict[str, tuple[str, ...]] = {
    "running_req": ("sglang:num_running_reqs", "vllm:num_requests_running", "llamacpp:requests_processing"),
    "queue_req": ("sglang:num_queue_reqs", "vllm:num_requests_waiting", "llamacpp:requests_deferred"),
}
"""Levels that add up over ranks, by what they are called here."""
SHARES: dict[str, tuple[str, ...]] = {
    "kv_usage": (
        "sglang:token_usage",
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "llamacpp:kv_cache_usage_ratio",
    ),
}
"""Levels of which the fullest rank counts."""
RETRY_S = 0.2
_LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)


def request(
    url: str, method: str, path: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> tuple[int, str]:
    """Send one request without a body and return status and text; (0, reason) when there was no answer."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=timeout_s)
    try:
        connection.request(method, parts.path.rstrip("/") + path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last: no name of a host
        return 0, str(error) or type(error).__name__
    finally:
        connection.close()


def counters(url: str, path: str | None, headers: Mapping[str, str] | None = None) -> str | None:
    """Return the text of the counters endpoint, None when there is none."""
    if path is None:
        return None
    status, text = request(url, "GET", path, headers=headers)
    return text if status == 200 else None


def counter_total(text: str, names: tuple[str, ...]) -> float | None:
    """Return the sum over all labels of the first of `names` that the text has."""
    found = _values(text, names)
    return sum(found) if found else None


def _values(text: str, names: tuple[str, ...]) -> list[float]:
    """Return the finite values of the first of `names` that the text has, one for each set of labels."""
    by_name: dict[str, list[float]] = {}
    for name, number in _LINE.findall(text):
        if name in names:
            try:
                value = float(number)
            except ValueError:
                continue
            if math.isfinite(value):
                by_name.setdefault(name, []).append(value)
    return next((by_name[n] for n in names if n in by_name), [])


class EngineWatch:
    """Reads the engine's gauges, and what its counters did since the last read."""

    def __init__(self, url: str, engine: MeasuredEngine, headers: Mapping[str, str] | None = None) -> None:
        self._url, self._engine, self._headers = url, engine, headers
        self._last: tuple[float, str] | None = None

    def __call__(self) -> dict[tuple[str, str], float]:
        """Return what there is now, under the source `engine`."""
        text, now = counters(self._url, self._engine.metrics_path(), self._headers), time.perf_counter()
        if text is None:
            return {}
        found = {name: sum(values) for name, names in GAUGES.items() if (values := _values(text, names))}
        found |= {name: max(values) for name, names in SHARES.items() if (values := _values(text, names))}
        if self._last is not None:
            found |= self._since(*self._last, text, now)
        self._last = now, text
        return {("engine", name): value for name, value in found.items()}

    def _since(self, then: float, before: str, text: str, now: float) -> dict[str, float]:
        first, last = (counter_total(t, GENERATED_TOKENS) for t in (before, text))
        found = {}
        if first is not None and last is not None and last >= first:
            found["gen_tok_s"] = (last - first) / (now - then)
        spoken = self._engine.speculation_from_counters(before, text)
        if spoken.accept_len is not None and spoken.drafted_tokens != 0:
            found["accept_len"] = spoken.accept_len
        return found


def flush_cache(url: str, how: tuple[str, str], deadline: Deadline, headers: Mapping[str, str] | None = None) -> bool:
    """Empty the prefix cache; a server refuses while it is still finishing requests, so try for two seconds."""
    until = deadline.sooner(2.0)
    while True:
        status, _ = request(url, how[0], how[1], headers=headers)
        if 200 <= status < 300:
            return True
        if until.passed or status in (0, 404, 405):
            return False
        time.sleep(RETRY_S)
