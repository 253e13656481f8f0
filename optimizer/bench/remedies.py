"""What to do about requests that failed, by the cause that the client gives them.

Decides the advice only. The causes themselves come from `connection.py` and `stream.py`.
"""

from __future__ import annotations

LOG = "look at the server's log"
REMEDIES = {
    "connect": "start the server, or check address and port",
    "tls": "use a certificate that is trusted here (SSL_CERT_FILE names your own authority), or http://",
    "http_3": "measure the address that it leads to",
    "http_400": "the server refuses such requests: its words say what, another `api` may suit it",
    "http_401": "the server asks for a key: `ratchet bench` takes it from RATCHET_BENCH_KEY",
    "http_403": "the server refuses the key: `ratchet bench` takes it from RATCHET_BENCH_KEY",
    "http_404": "there is no such path or model: look at /v1/models of the server, or choose another `api`",
    "http_422": "the server refuses such requests: its words say what, another `api` may suit it",
    "http_429": "ask for less at once (`concurrency`, `arrival_rate_s`), or lift the server's limit",
    "stalled": "raise the workload's stall_timeout_s if the server may be that slow; else look at its log",
    "timeout": "raise the workload's request_timeout_s if an answer may take that long; else look at the server's log",
    "dropped": "the server, or a proxy before it, broke the answer off: look at its log",
    "bad_stream": "choose the `api` that this server speaks; a proxy that changes answers must not be between",
    "bad_http": "check the address, https:// or http://; a proxy that changes answers must not be between",
    "not_streamed": "the server must stream its answers: check the address, and that no proxy holds them back",
    "empty": "the model answered nothing that can be timed: look at the prompts, the chat template and the `api`",
}
"""By the beginning of the cause; the longest that fits counts."""


def remedy_for(error: str) -> str:
    """Return what to do about a failed request; `error` is `cause: detail` as its sample has it."""
    cause = error.partition(":")[0]
    fitting = [known for known in REMEDIES if cause.startswith(known)]
    return REMEDIES[max(fitting, key=len)] if fitting else LOG
