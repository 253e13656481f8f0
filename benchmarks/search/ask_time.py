"""Time of a suggestion at 200 trials and 20 parameters, through the whole study on SQLite: wall clock and CPU.

python -m benchmarks.search.ask_time
"""

from __future__ import annotations

import copy
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.landscapes import EAGLE_SPACE, HOME, Landscape, eagle3, eagle_crash
from optimizer.search.study import Outcome, Result, SearchStudy, open_study

TRIALS = 200
ASKS = 10
MANY = 1000


def landscape() -> Landscape:
    """The EAGLE-3-like space with seven more parameters: twenty in all."""
    section = copy.deepcopy(EAGLE_SPACE)
    home = dict(HOME)
    for i in range(7):
        section["parameters"][f"extra-{i}"] = {"choice": ["a", "b", "c"]} if i % 2 else {"int": [1, 12]}
        home[f"extra-{i}"] = "a" if i % 2 else 3
    return Landscape("synthetic-20", eagle3().speed, eagle_crash, section, home)


def filled(url: str, where: Landscape, trials: int = TRIALS) -> SearchStudy:
    """Return a study with random trials."""
    study = open_study(url, "ask-time", space=where.space)
    rng = np.random.default_rng(0)
    first = where.baseline
    for i in range(trials):
        candidate = first if i == 0 else where.space.sample(rng)
        assert candidate is not None
        restart = where.draw(candidate, rng)
        failed = Result(None, Outcome.INFEASIBLE, failure=restart.failed)
        good = Result(restart.tok_s, accept_len=restart.accept_len)
        study.add_observation(candidate.params, good if restart.tok_s else failed)
    return study


def memory_line(where: Landscape) -> str:
    """Say how much memory many suggestions on one history take."""
    study = filled("memory", where, trials=40)
    trials = study.study.get_trials(deepcopy=False)
    for _ in range(20):
        study.sampler.propose(trials, where.space)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(MANY):
        study.sampler.propose(trials, where.space)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return f"- memory: {grown / 1024:.1f} MiB more after {MANY:,} suggestions at 40 trials"


def lines() -> list[str]:
    """Measure some suggestions and return what they took."""
    where = landscape()
    with tempfile.TemporaryDirectory() as folder:
        study = filled(f"sqlite:///{Path(folder) / 'optuna.db'}", where)
        wall, cpu = [], []
        for _ in range(ASKS):
            begun, used = time.perf_counter(), time.process_time()
            study.ask()
            wall.append(1000 * (time.perf_counter() - begun))
            cpu.append(1000 * (time.process_time() - used))
        study.close()
    found = [f"{TRIALS} trials, {len(where.space.names)} parameters, {ASKS} suggestions on SQLite:", ""]
    for name, times in (("wall clock", wall), ("CPU", cpu)):
        middle = statistics.median(times)
        found.append(f"- {name}: first {times[0]:.0f} ms, median {middle:.0f} ms, slowest {max(times):.0f} ms")
    return [*found, memory_line(where)]


if __name__ == "__main__":
    print("\n".join(lines()))
