"""Start the double: arguments, phases with SGLang's log lines, children, HTTP, and the failure that was asked for."""

from __future__ import annotations

import asyncio
import os
import random
import shlex
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

if __package__ in {None, ""}:  # started by path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.replica import children, flags, web

CHILDREN: list[int] = []


def log(text: str, who: str = "") -> None:
    """Write one line as SGLang's logger does."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    sys.stderr.write(f"[{stamp}{' ' + who if who else ''}] {text}\n")
    sys.stderr.flush()


def die_as_tree(text: str) -> None:
    """Fail as a scheduler does: exception, SIGQUIT to the parent, and the whole tree kills itself."""
    log(f"Scheduler hit an exception: Traceback (most recent call last):\n{text}", "TP0")
    log("Received sigquit from a child process. It usually means the child failed.")
    children.end(CHILDREN, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def should_fail(options: Any) -> str | None:
    """Return the scripted failure, if it is still to happen."""
    if not options.replica_fail or not options.replica_fail_times:
        return str(options.replica_fail) if options.replica_fail else None
    counter = Path(options.replica_fail_times)
    lines = counter.read_text().splitlines() if counter.exists() else []
    if not lines:
        options.replica_fail = None
        return None
    counter.write_text("".join(f"{line}\n" for line in lines[1:]))
    return str(options.replica_fail)


def work(seconds: float) -> None:
    """Take time as loading does: some of it on the CPU."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(2000))
        time.sleep(min(0.02, max(0.0, end - time.monotonic())))


def start_children(options: Any) -> None:
    """Start schedulers and the detokenizer, renamed."""
    for rank in range(options.replica_children):

        def body(rank: int = rank) -> None:
            children.take_gpu(rank, options.replica_gpu_mib, options.replica_release_s)
            children.idle()

        CHILDREN.append(
            children.fork(
                f"sglang::scheduler_TP{rank}",
                body,
                escape=options.replica_escape,
                ignore_term=options.replica_ignore_term,
            )
        )
    CHILDREN.append(children.fork("sglang::detokenizer", children.idle, escape=False, ignore_term=False))


def load(args: dict[str, Any], options: Any, failure: str | None) -> None:
    """Run through the start-up phases until the port may be opened."""
    part = options.replica_load_s / 4
    log("Init parallel begin.", "TP0")
    start_children(options)
    work(part)
    log(f"Init parallel ends. elapsed={part:.2f} s", "TP0")
    if failure == "gpu_dirty":
        die_as_tree("RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.")
    log("Load weight begin. avail mem=78.60 GB", "TP0")
    if failure == "load_hang":
        time.sleep(100_000)
    work(part)
    if failure == "load_oom":
        die_as_tree("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total "
                    "capacity of 79.10 GiB of which 512.00 MiB is free.")  # fmt: skip
    log(f"Load weight end. elapsed={part:.2f} s, type=Replica, avail mem=41.20 GB, mem usage=37.40 GB.", "TP0")
    if failure == "kv" or args["mem_fraction_static"] < 0.5:
        die_as_tree("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
                    f"mem_fraction_static={args['mem_fraction_static']}")  # fmt: skip
    work(part)
    log("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 200000, K size: 9.10 GB, V size: 9.10 GB", "TP0")
    log("Memory pool end. avail mem=9.80 GB", "TP0")
    capture(args, failure, part)
    log(f"max_total_num_tokens=200000, chunked_prefill_size={args['chunked_prefill_size']}, max_prefill_tokens=16384, "
        f"max_running_requests={args['max_running_requests']}, context_len={args['context_length']}, "
        "available_gpu_mem=7.20 GB", "TP0")  # fmt: skip


def capture(args: dict[str, Any], failure: str | None, seconds: float) -> None:
    """Capture graphs, unless they are off; a tree that holds fewer nodes than asked for fails here."""
    if args["disable_cuda_graph"]:
        return
    log("Capture target decode cuda graph begin. backend=full, num_tokens_per_req=1, avail mem=9.80 GB", "TP0")
    work(seconds)
    too_many = args.get("speculative_algorithm") and args["speculative_num_draft_tokens"] > flags.capacity(
        args["speculative_num_steps"], args["speculative_eagle_topk"]
    )
    if failure == "capture" or too_many:
        why = "selected index k out of range" if too_many else "CUDA out of memory. Tried to allocate 256.00 MiB."
        die_as_tree(f"Exception: Capture cuda graph failed: {why}\nPossible solutions:\n1. set --mem-fraction-static "
                    "to a smaller value (e.g., 0.8 or 0.7)")  # fmt: skip
    log(f"Capture target decode cuda graph end. bs=[1, 2, 4, 8], elapsed={seconds:.2f} s, mem usage=1.10 GB, "
        "avail mem=8.70 GB", "TP0")  # fmt: skip


async def serve(state: web.State, options: Any, failure: str | None) -> int:
    """Open the port, warm up, serve until a signal; returns the exit status."""
    print(f"INFO:     Started server process [{os.getpid()}]\nINFO:     Waiting for application startup.", flush=True)
    print("INFO:     Application startup complete.", flush=True)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    host, port = state.args["host"], state.args["port"]
    try:
        sock.bind((host, port))
    except OSError:
        print(f"ERROR:    [Errno 98] error while attempting to bind on address ('{host}', {port}): address already in "
              "use", flush=True)  # fmt: skip
        return 3
    server = await asyncio.start_server(lambda r, w: web.Connection(state, r, w).serve(), sock=sock, backlog=1024)
    print(f"INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)", flush=True)
    if failure == "warmup":
        await asyncio.sleep(0.1)
        log("Initialization failed. warmup error: Traceback (most recent call last):\nAssertionError: 500")
        children.end(CHILDREN, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    if failure not in {"not_ready", "no_generate"}:
        state.up = True
        log("The server is fired up and ready to roll!")
        if options.replica_ready_file:
            born = children.start_ticks(os.getpid()) / os.sysconf("SC_CLK_TCK")
            Path(options.replica_ready_file).write_text(f"{born} {time.clock_gettime(time.CLOCK_BOOTTIME)}\n")
    waits = [asyncio.create_task(stopping.wait()), asyncio.create_task(state.crash.wait())]
    limit = float(options.replica_fail_after) if failure == "exit0" else None
    await asyncio.wait(waits, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
    if state.crash.is_set():
        die_as_tree("RuntimeError: CUDA error: an illegal memory access was encountered")
    if stopping.is_set():
        log("SIGTERM received. signum=15. Draining requests and shutting down...")
    server.close()
    children.end(CHILDREN, signal.SIGTERM if options.replica_escape else signal.SIGKILL)
    return 0


def main(argv: list[str]) -> int:
    """Run the double; returns the exit status."""
    options = flags.parse(argv)
    failure = should_fail(options)
    if failure == "import":
        sys.stderr.write("Traceback (most recent call last):\nModuleNotFoundError: No module named 'sgl_kernel'\n")
        return 1
    try:
        args, warnings = flags.resolve(options)
    except (ValueError, AssertionError, TypeError):
        traceback.print_exc()
        return 1
    for warning in warnings:
        log(f"WARNING {warning}")
    log("server_args=ServerArgs(" + ", ".join(f"{k}={v!r}" for k, v in args.items()) + ")")
    load(args, options, failure)
    rng = random.Random(options.replica_seed)
    factor = options.replica_speed * max(0.1, rng.gauss(1.0, options.replica_noise_pct / 100))
    state = web.State(args, options, shlex.join([sys.executable, *sys.argv]), factor, log)
    return asyncio.run(serve(state, options, failure))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
