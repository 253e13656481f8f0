"""Small requests beside the load: counters before and after a window, emptying a cache. Blocking, with time limits.

Decides what an answer of the counters endpoint is worth; a server without one is measured all the same.
"""

from __future__ import annotations

import http.client
import math
import re
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from optimizer.clock import Deadline

TIMEOUT_S = 10.0
GENERATED_TOKENS = ("llamacpp:tokens_predicted_total", "sglang:generation_tokens_total", "vllm:generation_tokens_total")
"""Counters of all output tokens, whoever asked for them."""
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
    except (OSError, http.client.HTTPException) as error:
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
    sums: dict[str, float] = {}
    for name, number in _LINE.findall(text):
        if name in names:
            try:
                value = float(number)
            except ValueError:
                continue
            if math.isfinite(value):
                sums[name] = sums.get(name, 0.0) + value
    return next((sums[n] for n in names if n in sums), None)


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
