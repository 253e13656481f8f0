"""Sampling the machine: what is kept, and that a failed read is no failure."""

from __future__ import annotations

import time

from optimizer.bench.probe import Probe


def test_mean_least_and_most_are_kept_and_failed_reads_left_out() -> None:
    reads: list[float] = []

    def read() -> dict[str, float]:
        reads.append(100.0 + len(reads))
        if len(reads) == 2:
            raise OSError("no answer this time")
        return {"gpu0_power_w": reads[-1]}

    until = time.monotonic() + 10
    with Probe(read, interval_s=0.001) as probe:
        while len(reads) < 5 and time.monotonic() < until:
            time.sleep(0.005)
    metrics = probe.metrics()
    assert metrics["gpu0_power_w_min"] == 100 and metrics["gpu0_power_w_max"] == reads[-1]
    expected = [v for v in reads if v != 101]
    assert metrics["gpu0_power_w_mean"] == sum(expected) / len(expected)
    count = len(reads)
    time.sleep(0.02)
    assert len(reads) == count, "nothing is read after the level"


def test_without_a_reader_nothing_is_sampled() -> None:
    with Probe(None) as probe:
        pass
    assert probe.metrics() == {}
