"""Listing times, event delivery and memory: `python -m benchmarks.api.serve [--trials N] [--clients C] [--seconds S]`.

A service process of its own over a database with N stored trials; C clients follow its events while another process
writes them and pages of trials are read. Prints p50 and p99 of a page of 50 trials, the delay from writing an event to
its arrival, and the process's memory before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles

import httpx

from storage import events, trials
from storage.engine import Database
from storage.records import TrialRecord
from tests.integration.api import filled

EVENTS_PER_S = 5


def fill(db: Database, count: int) -> None:
    """Store one study with many trials, in few transactions."""
    filled.add_host(db)
    study = filled.add_study(db, "large", state="running")
    fence = filled.take_lease(db)
    command = filled.command({"speculative-num-steps": 5})
    for start in range(0, count, 500):
        with db.write() as conn:
            for i in range(start, min(start + 500, count)):
                record = TrialRecord(
                    study.id, 0, "explore", "complete", f"k{i}", {"speculative-num-steps": i % 8}, filled.START,
                    effective=filled.SPEC["launch"]["flags"], launch_command=command, output_tok_s=90 + i % 20,
                    accept_len=2.3, timings={"load_s": 300.0, "measure_s": 90.0},
                )  # fmt: skip
                trials.add(conn, record, host=study.host, fence=fence)


def memory_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def follow(client: httpx.AsyncClient, delays: list[float], ready: asyncio.Semaphore) -> None:
    """Follow the study's new events and note how long each took."""
    async with client.stream("GET", "/api/v1/studies/large/events", params={"after": 0}, timeout=None) as stream:
        ready.release()
        async for line in stream.aiter_lines():
            if line.startswith("data:"):
                sent = json.loads(line[5:]).get("sent")
                if sent is not None:
                    delays.append(time.time() - sent)


async def write(db: Database, seconds: float) -> int:
    """Append events at a steady rate; each carries its own time."""
    count = int(seconds * EVENTS_PER_S)
    for _ in range(count):
        with db.write() as conn:
            events.append(conn, "id-large", "note", {"sent": time.time()}, datetime.now(UTC))
        await asyncio.sleep(1 / EVENTS_PER_S)
    return count


async def read_pages(client: httpx.AsyncClient, seconds: float) -> list[float]:
    """Walk through the trials page by page and note the time of each."""
    times: list[float] = []
    after = None
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        params = {"limit": 50} | ({"after": after} if after else {})
        began = time.perf_counter()
        answer = await client.get("/api/v1/studies/large/trials", params=params)
        times.append(time.perf_counter() - began)
        after = answer.json()["next"]
        await asyncio.sleep(0.05)
    return times


async def measure(url: str, pid: int, db: Database, clients: int, seconds: float) -> None:
    """Run everything together and print the figures."""
    limits = httpx.Limits(max_connections=clients + 10)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
        quiet = await read_pages(client, min(5.0, seconds))
        before = memory_mib(pid)
        delays: list[float] = []
        ready = asyncio.Semaphore(0)
        followers = [asyncio.create_task(follow(client, delays, ready)) for _ in range(clients)]
        for _ in followers:
            await ready.acquire()
        await asyncio.sleep(1)
        joined = memory_mib(pid)
        written, busy = await asyncio.gather(write(db, seconds), read_pages(client, seconds))
        await asyncio.sleep(1)
        for task in followers:
            task.cancel()
        print(f"page of 50 trials, nobody listening: {spread(quiet)}")
        print(f"page of 50 trials, {clients} listening: {spread(busy)}")
        print(f"event delivery: {spread(delays)}; {len(delays)} of {written * clients} delivered")
        print(
            f"memory: {before:.0f} MiB, {joined:.0f} MiB with {clients} clients, {memory_mib(pid):.0f} MiB at the end"
        )


def spread(times: list[float]) -> str:
    """Write p50, p99 and the maximum in milliseconds."""
    cuts = quantiles(times, n=100)
    return f"p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms, max {max(times) * 1000:.1f} ms, n {len(times)}"


def main() -> None:
    """Fill, serve, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = filled.new_database(Path(folder))
        fill(db, options.trials)
        command = [sys.executable, "-m", "api.cli.main", "serve", "--no-worker", "--port", "0", "--db", db.url]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "RATCHET_HOME": folder}
        )
        assert process.stderr is not None
        try:
            url = next(word for line in process.stderr for word in line.split() if word.startswith("http://"))
            asyncio.run(measure(url, process.pid, db, options.clients, options.seconds))
        finally:
            process.terminate()
            process.wait(30)
            db.close()


if __name__ == "__main__":
    main()
