"""How far `space check` agrees with the engines' recorded answers, and how fast logs are explained and read."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from benchmarks.engines.logs import LOGS
from benchmarks.engines.recorded import ENGINES, disagreement, rows
from optimizer.engines.base import FailureContext
from optimizer.engines.registry import find_engine

MEGABYTE = 1e6


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks engines",
        description=__doc__,
        epilog="benchmarks.engines.sglang_agreement, .vllm_agreement and .llamacpp_agreement ask the engines.",
    )
    parser.add_argument("--megabytes", type=float, default=8.0, help="size of each log")
    asked = parser.parse_args()
    _agreement()
    _speed(int(asked.megabytes * MEGABYTE))


def _agreement() -> None:
    print(f"{'engine':8} {'version':12} {'GPU':10} {'flag sets':>9} {'agree':>7}")
    for engine in ENGINES:
        asked: Counter[tuple[str, str]] = Counter()
        wrong: Counter[tuple[str, str]] = Counter()
        for row in rows(engine):
            key = (row["version"], row["gpu"])
            asked[key] += 1
            wrong[key] += bool(disagreement(engine, row))
        for (version, gpu), count in asked.items():
            share = 1 - wrong[version, gpu] / count
            print(f"{engine:8} {version:12} {gpu:10} {count:9} {share:7.1%}")


def _speed(size: int) -> None:
    print(
        f"\n{'engine':8} {'log':8} {'explain MB/s':>12} {'telemetry MB/s':>14}   CPU time, {size / MEGABYTE:g} MB each"
    )
    for name, (serving, failing) in LOGS.items():
        engine = find_engine(name)
        healthy = serving * (size // len(serving))
        for kind, text in (("healthy", healthy), ("failing", healthy + failing)):
            explained = _rate(text, partial(engine.explain, context=FailureContext()))
            read = _rate(text, engine.telemetry)
            print(f"{name:8} {kind:8} {explained:12.1f} {read:14.1f}")


def _rate(text: str, work: Callable[[str], object]) -> float:
    start = time.process_time()
    work(text)
    return len(text) / MEGABYTE / max(1e-9, time.process_time() - start)


if __name__ == "__main__":
    main()
