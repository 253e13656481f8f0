"""What owning a server costs: our own time per restart, how soon death and readiness are noticed, commands, memory.

Runs the test double of an SGLang server (tests/replica) over SSH on loopback, through a real sshd where there is one,
with the product's own verbs and readiness. The engine's own time is taken from the double itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from optimizer import readiness
from optimizer.clock import Deadline
from optimizer.engines.base import LaunchPlan
from optimizer.errors import ServerFailed
from optimizer.remote import connect, process
from optimizer.remote.session import SshLink
from tests.integration.remote.sshservers import EmbeddedServer, free_port, start_sshd

REPLICA = Path(__file__).parents[2] / "tests" / "replica" / "__main__.py"
FENCE = 1


def boot_s() -> float:
    """Return seconds since boot, on the clock that the double writes too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def plan_for(port: int, ready_file: Path, load_s: float) -> LaunchPlan:
    """Return a plan for the double."""
    argv = (sys.executable, str(REPLICA), "--model-path", "/models/m", "--port", str(port), "--replica-load-s",
            str(load_s), "--replica-speed", "50", "--replica-ready-file", str(ready_file))  # fmt: skip
    return LaunchPlan(argv, {}, None, port, "127.0.0.1", "/models/m", {})


def one_restart(link: SshLink, folder: Path, load_s: float) -> dict[str, float]:
    """Start, prove ready and stop one server; returns seconds and commands."""
    port, ready_file = free_port(), folder / "ready"
    ready_file.unlink(missing_ok=True)
    plan, run_dir = plan_for(port, ready_file, load_s), str(folder / "run")
    commands, began = link.commands, boot_s()
    process.preflight(link, plan, run_dir=run_dir)
    server = process.launch(
        link, plan, run_id=process.new_run_id(), run_dir=run_dir, fence=FENCE, deadline=Deadline.after(60)
    )
    launched = boot_s()
    tunnel = link.open_tunnel(port)
    readiness.wait_until_ready(
        link, server, plan, engine_name="sglang", url=tunnel.url, timeout_s=120, check=lambda: None
    )
    ready = boot_s()
    before_stop = link.commands
    process.stop(link, server, run_dir=run_dir, fence=FENCE, deadline=Deadline.after(60))
    stopped = boot_s()
    tunnel.close()
    born, engine_ready = map(float, ready_file.read_text().split())
    return {
        "preflight_and_launch_s": launched - began,
        "engine_start_s": engine_ready - born,
        "ready_noticed_s": ready - engine_ready,
        "stop_s": stopped - ready,
        "own_s": (stopped - began) - (engine_ready - born),
        "commands": float(link.commands - commands),
        "commands_stop": float(link.commands - before_stop),
    }


def one_death(link: SshLink, folder: Path) -> float:
    """Kill a loading server and return the seconds until it is told."""
    port = free_port()
    plan = plan_for(port, folder / "unused", 60.0)
    run_dir = str(folder / "run")
    server = process.launch(
        link, plan, run_id=process.new_run_id(), run_dir=run_dir, fence=FENCE, deadline=Deadline.after(60)
    )
    killed: list[float] = []

    def kill() -> None:
        os.kill(server.pid, signal.SIGKILL)
        killed.append(boot_s())

    threading.Timer(3.0, kill).start()
    tunnel = link.open_tunnel(port)
    try:
        readiness.wait_until_ready(
            link, server, plan, engine_name="sglang", url=tunnel.url, timeout_s=60, check=lambda: None
        )
    except ServerFailed:
        told = boot_s()
    finally:
        tunnel.close()
        process.stop(link, server, run_dir=run_dir, fence=FENCE, deadline=Deadline.after(60))
    return told - killed[0]


def rss_mib() -> float:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def summary(rows: list[dict[str, float]], deaths: list[float], memory: tuple[float, float, float]) -> dict[str, Any]:
    """Return medians and worst cases."""
    result: dict[str, Any] = {}
    for key in rows[0]:
        values = [row[key] for row in rows]
        result[key] = {"median": round(statistics.median(values), 3), "worst": round(max(values), 3)}
    result["death_told_s"] = {"median": round(statistics.median(deaths), 3), "worst": round(max(deaths), 3)}
    before, connected, after = memory
    result["session_mib"] = {"connected": round(connected - before, 1), "after_all_restarts": round(after - before, 1)}
    result["load_average"] = os.getloadavg()[0]
    return result


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--deaths", type=int, default=5)
    parser.add_argument("--load-s", type=float, default=1.0, help="pretended start-up time of the engine")
    parser.add_argument("--server", choices=["sshd", "embedded"], default="sshd")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ratchet-bench-"))
    has_sshd = shutil.which("sshd") or Path("/usr/sbin/sshd").exists()
    embedded = options.server == "embedded" or not has_sshd
    server = EmbeddedServer(folder / "ssh") if embedded else start_sshd(folder / "ssh")
    link = connect.open_link(server.entry())
    assert isinstance(link, SshLink)
    try:
        before = rss_mib()
        link.sh("exit 0", deadline=Deadline.after(30))
        connected = rss_mib()
        rows = [one_restart(link, folder, options.load_s) for _ in range(options.restarts)]
        deaths = [one_death(link, folder) for _ in range(options.deaths)]
        result = summary(rows, deaths, (before, connected, rss_mib()))
    finally:
        link.close()
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    result["ssh_server"] = "asyncssh" if embedded else "OpenSSH sshd"
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"{result['ssh_server']} on loopback, {options.restarts} restarts, load average {result['load_average']:.1f}")
    for key, value in result.items():
        if isinstance(value, dict):
            print(f"  {key:24s} " + "  ".join(f"{name} {number}" for name, number in value.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
