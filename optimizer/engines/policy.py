"""What follows from each label: whose fault it is, whether to try again, whether the study can go on.

One table, so that the same failure never leads to two different moves. `infrastructure` is what passes (ports,
leftovers, networks) and is tried again; `host` is what a person must repair; `config` teaches the search; `engine` is
a defect of the server. A cause may narrow its row when its text says more than the label.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.engines.base import Blame

NONE = "none"


@dataclass(frozen=True)
class Policy:
    """The consequences of one label, and the words used when no cause has better ones."""

    blame: Blame
    retry: bool
    stop_study: bool
    summary: str
    remedy: str


def _row(blame: Blame, summary: str, remedy: str, *, retry: bool = False, stop: bool = False) -> Policy:
    return Policy(blame, retry, stop, summary, remedy)


_C, _H, _I, _E = Blame.CONFIG, Blame.HOST, Blame.INFRASTRUCTURE, Blame.ENGINE

POLICIES: dict[str, Policy] = {
    NONE: _row(_E, "no failure in this log", ""),
    "invalid_flag": _row(_C, "the server refused a flag", "compare the flags with --help of the installed version"),
    "unsupported_combination": _row(
        _C,
        "the engine does not support this combination of settings",
        "change one of the settings named in the message",
    ),
    "unsupported_model": _row(
        _C, "this release cannot serve the model", "upgrade the engine and transformers together", stop=True
    ),
    "environment_broken": _row(
        _H, "the Python environment is broken", "reinstall the versions that the engine pins", stop=True
    ),
    "model_not_found": _row(_C, "the model was not found", "correct the model path or name", stop=True),
    "draft_mismatch": _row(
        _C, "the draft model does not fit the target", "use a draft trained for exactly this target"
    ),
    "oom_weights": _row(
        _C, "the weights do not fit into GPU memory", "raise {tp}, or use a quantised checkpoint; {mem} cannot help"
    ),
    "oom_kv_cache": _row(
        _C,
        "after the weights no room is left for the KV cache",
        "raise {mem}, or lower {ctx} or {seqs}, or use {kvdtype}",
    ),
    "oom_cuda_graph_capture": _row(
        _C, "GPU memory ran out while capturing graphs", "lower {mem}, lower {graphs}, or {no_graph}"
    ),
    "oom_runtime": _row(_C, "GPU memory ran out while serving", "lower {mem}, {seqs} or {chunk}"),
    "oom_host_memory": _row(
        _H, "the host's memory could not be allocated or pinned", "free host memory or lower {hostmem}"
    ),
    "killed_host_oom": _row(
        _H,
        "the kernel killed a process of the server because host memory ran out",
        "free host memory or lower {hostmem}",
    ),
    "cuda_graph_capture_failed": _row(
        _C, "graph capture failed, not for lack of memory", "try another {attn}; {no_graph} to confirm"
    ),
    "nccl_error": _row(
        _I,
        "the GPUs of the group could not talk to each other",
        "run once with NCCL_DEBUG=INFO; check /dev/shm (--shm-size, --ipc=host), NCCL_SOCKET_IFNAME and the fabric",
        retry=True,
    ),
    "custom_allreduce_failed": _row(
        _C,
        "the custom all-reduce failed between these GPUs",
        "add {no_car}; no expandable_segments in PYTORCH_CUDA_ALLOC_CONF, one IPC namespace for all ranks",
    ),
    "peer_rank_died": _row(
        _I, "another rank ended first; this one only noticed", "read the log of the rank that ended first", retry=True
    ),
    "port_in_use": _row(
        _I, "a port of the server is taken", "wait for the old server to end, or use another port", retry=True
    ),
    "bind_failed": _row(
        _C, "the server cannot listen on this address", "use an address of this host, and a port above 1023"
    ),
    "gpu_busy_leftover": _row(
        _I,
        "GPU memory is held by another process",
        "end leftovers of earlier servers and wait for idle memory; if nothing is left to end, lower {mem}",
        retry=True,
    ),
    "driver_cuda_mismatch": _row(
        _H,
        "driver, CUDA runtime and libraries do not belong together",
        "install builds made for this driver",
        stop=True,
    ),
    "kernel_arch_unsupported": _row(
        _C, "a kernel does not exist for this GPU", "choose another {attn} or a build for this GPU"
    ),
    "kernel_not_compiled": _row(
        _H,
        "a kernel that this release needs is missing or cannot be built",
        "install the kernel package that this release pins",
    ),
    "illegal_memory_access": _row(
        _E,
        "a kernel touched memory it must not touch",
        "never reuse this server; change {attn}, {no_graph}, or the release",
    ),
    "watchdog_timeout": _row(
        _E, "the server stopped making progress", "look at the rank that hangs; lower {chunk} or prompt lengths"
    ),
    "scheduler_crash": _row(
        _E, "the engine crashed", "read the traceback above the last messages; try another release"
    ),
    "disk_or_shm_full": _row(
        _I, "a disk or /dev/shm is full", "free the disk or enlarge /dev/shm (--shm-size, --ipc=host)", stop=True
    ),
    "health_never_ready": _row(
        _I,
        "the server never became ready",
        "see what it last did; check proxies, addresses and the start timeout",
        retry=True,
    ),
    "garbage_output": _row(
        _C, "the server answers with garbage", "drop the setting that changed; compare with the baseline"
    ),
    "low_acceptance": _row(
        _C, "the draft is almost never accepted", "the draft does not fit: change the draft, not numbers"
    ),
    "spec_inactive": _row(
        _C, "speculation was asked for and is not running", "check the draft settings in the start-up log"
    ),
    "unknown": _row(_E, "the server failed and the log does not say why", "collect more of the log, from every rank"),
}

LABELS = tuple(POLICIES)
