"""What a host shows of itself while one of its servers is measured: its GPUs, and the server's log of that time.

Decides which quantities of a GPU are kept, and what the log of the measured windows says of CUDA graphs.
"""

from __future__ import annotations

from dataclasses import replace

from optimizer.bench.base import Measurement
from optimizer.clock import Deadline
from optimizer.errors import HostError
from optimizer.remote import gpu, process
from optimizer.remote.base import Gpu, RunningServer
from optimizer.run import StudyRun

READ_S = 10.0
LOG_BYTES = 8_000_000
"""Of one window; a decode line comes every 40 steps, so a window of hours fits."""
ENOUGH_GRAPHS = 0.9
"""A smaller share of decode steps as CUDA graphs costs speed that its owner may not expect."""


class HostWatch:
    """The host of one running server, for `bench.measure`."""

    def __init__(self, run: StudyRun, server: RunningServer) -> None:
        self._run = run
        self._server = server
        self._marks: list[int | None] = []

    def read(self) -> dict[tuple[str, str], float]:
        """Return clocks, power, memory, load and heat of the GPUs; nothing on a host without any."""
        if self._run.hardware.gpu_count == 0:
            return {}
        ours = self._run.host.gpus
        found = gpu.snapshot(self._run.link, Deadline.after(READ_S))
        return {(f"gpu{g.index}", k): v for g in found if ours is None or g.index in ours for k, v in shown(g).items()}

    def mark(self) -> None:
        """Take note of where the server's log is now; a window that lacks a mark tells nothing of graphs."""
        try:
            status = process.status(self._run.link, self._server, log_limit=0, deadline=Deadline.after(READ_S))
        except HostError:
            self._marks.append(None)  # a host that is gone shows elsewhere
        else:
            self._marks.append(status.log_size)

    def graph_share(self) -> float | None:
        """Return the share of decode lines of the measured windows that ran as CUDA graphs, if the engine tells."""
        graphs: list[bool] = []
        for begin, end in zip(self._marks[::2], self._marks[1::2], strict=False):
            if begin is None or end is None:
                continue
            limit = min(LOG_BYTES, end - begin)
            data = process.read_log(
                self._run.link, self._server, offset=begin, limit=limit, deadline=Deadline.after(READ_S)
            )
            records = self._run.engine.telemetry(data.decode("utf-8", "replace"))
            graphs += [bool(r["graph"]) for r in records if r["kind"] == "decode" and "graph" in r]
        return sum(graphs) / len(graphs) if graphs else None

    def complete(self, measurement: Measurement) -> Measurement:
        """Add what the log of the measured windows says."""
        share = self.graph_share()
        if share is None:
            return measurement
        doubts = measurement.warnings
        if share < ENOUGH_GRAPHS:
            text = f"{share:.0%} of the decode steps ran as CUDA graphs: graphs are off, or batches exceed the captured"
            doubts = (*doubts, text)
        return replace(measurement, metrics={**measurement.metrics, "cuda_graph_share": share}, warnings=doubts)


def shown(one: Gpu) -> dict[str, float]:
    """Return the quantities of a GPU under names with units; what it does not tell is left out."""
    told = {
        "power_w": one.power_w,
        "clock_mhz": one.sm_clock_mhz,
        "temperature_c": one.temperature_c,
        "load_pct": one.utilisation_pct,
        "memory_mib": float(one.memory_used_mib),
    }
    return {name: value for name, value in told.items() if value is not None}
