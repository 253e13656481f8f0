"""The double's command line: SGLang's spelling, defaults and rewriting, as far as a tuner meets them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

VERSION = "0.5.23"
INT = ("tp-size", "dp-size", "pp-size", "ep-size", "port", "nccl-port", "max-running-requests", "max-total-tokens",
       "max-prefill-tokens", "chunked-prefill-size", "page-size", "context-length", "random-seed", "stream-interval",
       "num-continuous-decode-steps", "decode-log-interval", "cuda-graph-max-bs-decode", "cuda-graph-max-bs-prefill",
       "speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens", "watchdog-timeout",
       "speculative-ngram-max-bfs-breadth", "max-queued-requests", "nnodes", "node-rank")  # fmt: skip
FLOAT = ("mem-fraction-static", "schedule-conservativeness", "speculative-accept-threshold-single",
         "speculative-accept-threshold-acc", "swa-full-tokens-ratio")  # fmt: skip
TEXT = ("model-path", "tokenizer-path", "served-model-name", "host", "dtype", "quantization", "kv-cache-dtype",
        "attention-backend", "prefill-attention-backend", "decode-attention-backend", "sampling-backend",
        "grammar-backend", "schedule-policy", "load-format", "log-level", "log-level-http", "api-key", "chat-template",
        "speculative-algorithm", "speculative-draft-model-path", "speculative-draft-model-revision",
        "speculative-token-map", "speculative-attention-mode", "speculative-draft-attention-backend", "device",
        "sampling-defaults", "reasoning-parser", "tool-call-parser", "moe-runner-backend", "moe-a2a-backend",
        "dist-init-addr", "download-dir", "json-model-override-args")  # fmt: skip
SWITCH = ("trust-remote-code", "disable-cuda-graph", "disable-radix-cache", "disable-overlap-schedule",
          "enable-metrics", "enable-mixed-chunk", "enable-torch-compile", "enable-dp-attention", "enable-p2p-check",
          "disable-custom-all-reduce", "enable-nccl-nvls", "enable-symm-mem", "skip-server-warmup", "log-requests",
          "disable-cuda-graph-padding", "enable-two-batch-overlap", "enable-cache-report",
          "enable-memory-saver", "disable-chunked-prefix-cache")  # fmt: skip
FAILURES = {
    "import": "traceback before the arguments are read, exit 1",
    "load_oom": "CUDA out of memory while weights load; the tree kills itself, 137",
    "load_hang": "stands still while weights load: no log, no CPU time",
    "kv": "no memory for the KV cache, 137",
    "capture": "CUDA graph capture fails, 137",
    "warmup": "prints `Application startup complete.`, then the warm-up fails and it kills itself",
    "not_ready": "prints `Application startup complete.`; /health stays 503 and no request is answered",
    "no_generate": "/health is 200 at once, but every generation hangs",
    "exit0": "ends by itself with status 0 after it was ready",
    "crash": "the scheduler crashes after --replica-fail-after requests, 137",
    "garbage": "answers nonsense",
    "gpu_dirty": "refuses because GPU memory is unbalanced, 137",
}


DEFAULTS: dict[str, Any] = {
    "tp_size": 1,
    "dp_size": 1,
    "pp_size": 1,
    "page_size": 1,
    "chunked_prefill_size": 8192,
    "attention_backend": "fa3",
    "schedule_policy": "fcfs",
    "context_length": 131072,
}


def parser() -> argparse.ArgumentParser:
    """Return SGLang's parser (prefix matching on, as in the original) plus the double's own options."""
    p = argparse.ArgumentParser(prog="sglang serve", description="Test double of an SGLang server.")
    p.add_argument("--version", action="version", version=VERSION)
    for names, kind in ((INT, int), (FLOAT, float), (TEXT, str)):
        for name in names:
            p.add_argument(f"--{name}", type=kind)
    for name in SWITCH:
        p.add_argument(f"--{name}", action="store_true")
    p.add_argument("--tensor-parallel-size", "--tp", dest="tp_size", type=int)
    p.add_argument("--speculative-draft-model", dest="speculative_draft_model_path")
    p.add_argument("--cuda-graph-bs-decode", type=int, nargs="+")
    _replica_options(p)
    p.set_defaults(host="127.0.0.1", port=30000, log_level="info", decode_log_interval=40)
    return p


def _replica_options(p: argparse.ArgumentParser) -> None:
    own = p.add_argument_group("the double's own")
    own.add_argument("--replica-load-s", type=float, default=0.2, help="seconds from start to the open port")
    own.add_argument("--replica-speed", type=float, default=1.0, help="tokens come this many times faster")
    own.add_argument("--replica-noise-pct", type=float, default=0.0, help="spread of the speed between restarts")
    own.add_argument("--replica-seed", type=int, help="of that spread; else each restart differs")
    own.add_argument(
        "--replica-fail", choices=sorted(FAILURES), help="; ".join(f"{k}: {v}" for k, v in FAILURES.items())
    )
    own.add_argument(
        "--replica-fail-after", type=int, default=3, help="requests before `crash`, seconds before `exit0`"
    )
    own.add_argument(
        "--replica-fail-times", help="FILE: fail only as often as this file has lines, one is taken each time"
    )
    own.add_argument("--replica-ready-file", help="write process start and readiness there, in seconds since boot")
    own.add_argument("--replica-children", type=int, default=2, help="scheduler processes")
    own.add_argument("--replica-escape", action="store_true", help="children rename, setsid and re-parent themselves")
    own.add_argument("--replica-ignore-term", action="store_true", help="children ignore SIGTERM")
    own.add_argument("--replica-gpu-mib", type=int, default=20000, help="pretended memory of each child")
    own.add_argument(
        "--replica-release-s", type=float, default=0.0, help="GPU memory stays so long after death; -1: for ever"
    )


def capacity(steps: int, topk: int) -> int:
    """Most draft tokens that a tree can hold."""
    return 1 + topk + (steps - 1) * topk * topk


def resolve(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Return what really applies, and the warnings that say so.

    Raises:
        ValueError, AssertionError: a combination that the server refuses.
    """
    out = {k: v for k, v in vars(args).items() if not k.startswith("replica_")}
    warnings: list[str] = []
    for key, value in DEFAULTS.items():
        if out.get(key) is None:
            out[key] = value
    if out["chunked_prefill_size"] % out["page_size"]:
        raise AssertionError("chunked_prefill_size must be divisible by page_size")
    if not out.get("model_path"):
        raise ValueError("model_path is required")
    out["served_model_name"] = out.get("served_model_name") or out["model_path"]
    _speculation(out, warnings)
    if out["max_running_requests"] is None:
        out["max_running_requests"] = 2048
    if out["mem_fraction_static"] is None:
        out["mem_fraction_static"] = 0.88
    if out["cuda_graph_max_bs_decode"] is None:
        out["cuda_graph_max_bs_decode"] = min(256, out["max_running_requests"])
    return out, warnings


def _speculation(out: dict[str, Any], warnings: list[str]) -> None:
    algorithm = out.get("speculative_algorithm")
    if not algorithm:
        return
    algorithm = algorithm.upper()
    if algorithm not in {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM"}:
        raise ValueError(f"Unknown speculative algorithm name: {algorithm}")
    out["speculative_algorithm"] = "EAGLE" if algorithm == "NEXTN" else algorithm
    if out["max_running_requests"] is None:
        out["max_running_requests"] = 48
        warnings.append("Max running requests is reset to 48 for speculative decoding. You can override this by "
                        "explicitly setting --max-running-requests.")  # fmt: skip
    triple = ("speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens")
    if all(out[k] is None for k in triple):
        out.update(dict(zip(triple, (3, 1, 4), strict=True)))
    assert out["speculative_num_steps"] is not None
    if out["speculative_eagle_topk"] is None:
        raise TypeError("'>' not supported between instances of 'NoneType' and 'int'")
    steps = out["speculative_num_steps"]
    if out["speculative_eagle_topk"] == 1 and out["speculative_num_draft_tokens"] != steps + 1:
        warnings.append("speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 when "
                        "speculative_eagle_topk == 1")  # fmt: skip
        out["speculative_num_draft_tokens"] = steps + 1
    if out["speculative_num_draft_tokens"] is None:
        raise TypeError("unsupported operand type(s): 'NoneType' and 'int'")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse, or end with status 2 as argparse does."""
    if "--replica-help" in argv:
        argv = ["--help"]
    return parser().parse_args(list(argv))
