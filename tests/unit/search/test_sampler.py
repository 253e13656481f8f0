"""The sampler as a plain Optuna sampler, outside Ratchet."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc

import optuna
import pytest

from optimizer.search.sampler import RatchetSampler, make_sampler
from optimizer.search.study import open_study
from tests.unit.search import landscape


def objective(trial: optuna.Trial) -> float:
    graphs = trial.suggest_categorical("graphs", [True, False])
    steps = trial.suggest_int("steps", 1, 8)
    share = trial.suggest_float("share", 0.5, 0.9)
    if graphs and share > 0.85:
        raise ValueError("does not fit")
    return 100 - 3 * (steps - 4) ** 2 + 10 * graphs - 40 * abs(share - 0.7)


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def test_works_in_any_study_in_three_lines() -> None:
    study = optuna.create_study(direction="maximize", sampler=RatchetSampler(seed=1))
    study.optimize(objective, n_trials=30, catch=(ValueError,))
    assert study.best_value > 105
    assert len({tuple(sorted(t.params.items())) for t in study.trials}) == 30


def test_conditions_leave_parameters_out_of_the_trial() -> None:
    study = optuna.create_study(direction="maximize", sampler=RatchetSampler(landscape.canonical(), seed=0))
    for _ in range(20):
        trial = study.ask()
        chosen = dict(trial.relative_params)
        assert ("steps" in chosen) == (chosen["algorithm"] != "none")
        study.tell(trial, 50.0)


@pytest.mark.parametrize("sampler", ["ratchet", "tpe"])
def test_another_process_suggests_the_same(sampler: str) -> None:
    code = (
        "from tests.unit.search import landscape\n"
        "from optimizer.search.study import open_study\n"
        f"s = open_study('memory', 'n', space=landscape.canonical(), sampler={sampler!r}, seed=3)\n"
        "landscape.drive(s, 8)\n"
        "print(sorted(s.ask().params.items()))\n"
    )
    runs = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(runs) == 1
    search = open_study("memory", "n", space=landscape.canonical(), sampler=sampler, seed=3)
    landscape.drive(search, 8)
    assert runs == {f"{sorted(search.ask().params.items())}\n"}


def test_memory_stays_flat_over_many_suggestions() -> None:
    search = open_study("memory", "flat", space=landscape.canonical())
    landscape.drive(search, 12)
    trials = search.study.trials
    for _ in range(5):
        search.sampler.propose(trials, search.space)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(60):
        search.sampler.propose(trials, search.space)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 500_000  # one kept set of candidates per suggestion would be several megabytes


def test_needs_no_torch() -> None:
    code = "import sys; from optimizer.search import study; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_gp_without_torch_says_what_to_do() -> None:
    from importlib.util import find_spec

    from optimizer.errors import BadInput

    if find_spec("torch") is not None:
        pytest.skip("torch is installed here")
    with pytest.raises(BadInput) as caught:
        make_sampler("gp", landscape.canonical(), seed=0)
    assert "install torch" in caught.value.problems[0].hint
