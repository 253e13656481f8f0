"""The models behind the suggestions: speed, feasibility, limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optimizer.search import feasibility, policy
from optimizer.search.acquisition import log_expected_gain, most_promising
from optimizer.search.encoding import Encoder, distances, one_hot
from optimizer.search.gp import Objective, Prior, fit
from optimizer.search.history import Observation
from optimizer.search.limits import chance_of_keeping, keeps
from optimizer.search.speed import fit_speed
from tests.unit.search import landscape

SPACE = landscape.canonical()


def observations(count: int, *, seed: int = 0, kind: str = "complete") -> list[Observation]:
    rng = np.random.default_rng(seed)
    found = []
    while len(found) < count:
        c = SPACE.sample(rng)
        assert c is not None
        if all(o.key != c.key for o in found):
            value = landscape.speed(c.params)
            found.append(
                Observation(kind, c.params, c.features, c.key, value, accept_len=landscape.accept_len(c.params))
            )
    return found


def test_predicts_what_it_has_not_seen() -> None:
    seen, new = observations(40), observations(80)[40:]
    encoder = Encoder(SPACE)
    mean, sd = fit_speed(encoder, seen).predict(encoder.encode([o.features for o in new]))
    truth = np.log([o.value or 0.0 for o in new])
    assert np.corrcoef(mean, truth)[0, 1] > 0.95
    assert np.mean(np.abs(mean - truth) < 3 * sd + 0.01) > 0.9


def test_the_gradient_is_the_derivative() -> None:
    encoder = Encoder(SPACE)
    seen = observations(12)
    rows = encoder.encode([o.features for o in [*seen, seen[0]]])
    drift = np.exp(-np.abs(np.subtract.outer(np.arange(13.0), np.arange(13.0))) / 5)
    objective = Objective(rows, np.linspace(-1, 1, 13), np.zeros((13, 13)), drift, *Prior().moments(5, 0.2))
    at = np.linspace(-1.5, 0.5, 11)
    gradient = objective(at)[1]
    for i in range(len(at)):
        step = np.zeros(len(at))
        step[i] = 1e-5
        numeric = (objective(at + step)[0] - objective(at - step)[0]) / 2e-5
        assert gradient[i] == pytest.approx(numeric, rel=1e-3, abs=1e-4)


def test_one_hot_products_are_the_distances() -> None:
    encoder = Encoder(SPACE)
    a = encoder.encode([o.features for o in observations(7)])
    b = encoder.encode([o.features for o in observations(5, seed=1)])
    left, right, tables = one_hot(a, b)
    rebuilt, at = [], 0
    for table in tables:
        width = len(table)
        rebuilt.append(left[:, at : at + width] @ table @ right[:, at : at + width].T)
        at += width
    assert np.allclose(np.array(rebuilt), distances(a, b))


def test_pending_starts_make_their_surroundings_surer_and_nothing_faster() -> None:
    encoder = Encoder(SPACE)
    model = fit_speed(encoder, observations(15))
    pending = encoder.encode([observations(40)[-1].features])
    before, after = model.predict(pending), model.expecting(pending).predict(pending)
    assert after[0] == pytest.approx(before[0], abs=1e-6)
    assert after[1][0] < 0.7 * before[1][0]


def test_hosts_of_other_speed_do_not_confuse_the_configurations() -> None:
    plain = observations(30)
    mixed = []
    for i, o in enumerate(plain):
        factor = 1.3 if i % 2 else 1.0
        mixed.append(
            Observation("complete", o.params, o.features, o.key, (o.value or 0) * factor, host="b" if i % 2 else "a")
        )
    rows = [o.features for o in observations(80)[30:]]
    truth = np.log([landscape.speed(o.params) for o in observations(80)[30:]])
    encoder = Encoder(SPACE)
    aware = fit_speed(encoder, mixed).predict(encoder.encode(rows))[0]
    blind = fit(encoder.encode([o.features for o in mixed]), np.log([o.value or 1.0 for o in mixed])).predict(
        encoder.encode(rows)
    )[0]
    spread = [float(np.std(m - truth)) for m in (aware, blind)]
    assert spread[0] < 0.7 * spread[1]


def test_ratios_to_the_baseline_undo_drift() -> None:
    plain = observations(30)
    drift = np.linspace(1.0, 0.7, 30)
    drifted = [
        Observation("complete", o.params, o.features, o.key, (o.value or 0) * d, reference=90.0 * d)
        for o, d in zip(plain, drift, strict=True)
    ]
    encoder = Encoder(SPACE)
    means = [fit_speed(encoder, seen).measured_means() for seen in (plain, drifted)]
    assert np.allclose(means[0] - np.log(90.0), means[1], atol=0.01)


def test_drift_is_told_apart_by_repeats_of_one_configuration() -> None:
    drift = np.linspace(1.0, 0.7, 36)
    seen: list[Observation] = []
    plain = iter(observations(40))
    home = next(plain)
    for i, factor in enumerate(drift):
        o = home if i % 6 == 0 else next(plain)
        seen.append(replace(o, value=(o.value or 0) * factor))
    encoder = Encoder(SPACE)
    rest = observations(90)[40:]
    truth = np.log([o.value or 0.0 for o in rest])
    rows = encoder.encode([o.features for o in rest])
    aware = fit_speed(encoder, seen).predict(rows)[0]
    blind = fit(encoder.encode([o.features for o in seen]), np.log([o.value or 1.0 for o in seen])).predict(rows)[0]
    spread = [float(np.std(mean - truth)) for mean in (aware, blind)]
    assert spread[0] < 0.7 * spread[1]


def test_learns_a_conjunction_from_few_failures() -> None:
    encoder = Encoder(SPACE)
    listed = SPACE.enumerate() or []
    rng = np.random.default_rng(3)
    order = rng.permutation(len(listed))
    failed = [listed[i] for i in order if landscape.crashes(listed[i].params)][:4]
    good = [listed[i] for i in order if not landscape.crashes(listed[i].params)][:14]
    model = feasibility.learn(
        encoder.encode([c.features for c in failed]),
        ["oom"] * 4,
        encoder.encode([c.features for c in good]),
    )
    rest = [c for c in listed if c not in failed and c not in good]
    chance = model.success_probability(encoder.encode([c.features for c in rest]))
    bad = np.array([landscape.crashes(c.params) for c in rest])
    assert np.median(chance[bad]) < 0.2
    assert np.median(chance[~bad]) > 0.8


def test_limits_are_learnt_and_a_missing_metric_is_not_kept() -> None:
    limits = {"ttft_p99_ms": (None, 800.0)}
    seen = []
    for o in observations(30):
        late = 1500.0 if o.params["algorithm"] == "eagle3" else 400.0
        seen.append(Observation("complete", o.params, o.features, o.key, o.value, metrics={"ttft_p99_ms": late}))
    encoder = Encoder(SPACE)
    others = observations(60)[30:]
    chance = chance_of_keeping(encoder, seen, limits, encoder.encode([o.features for o in others]))
    slow = np.array([o.params["algorithm"] == "eagle3" for o in others])
    assert chance[slow].max() < 0.3
    assert chance[~slow].min() > 0.7
    assert not keeps(observations(1)[0], limits)
    options = policy.Options(limits=limits)
    proposed = policy.propose(SPACE, seen, seed=0, options=options)
    assert proposed.params["algorithm"] != "eagle3"


def test_each_concurrency_level_has_its_own_best() -> None:
    def at(level: int, o: Observation) -> float:
        return (o.value or 0.0) if level == 1 else 1000.0 / float(str(o.params.get("steps", 1)))

    seen = [
        Observation(
            "complete", o.params, o.features, o.key, o.value, metrics={f"output_tok_s@{n}": at(n, o) for n in (1, 32)}
        )
        for o in observations(40)
    ]
    encoder = Encoder(SPACE)
    model = fit_speed(encoder, seen, levels={1: 0.5, 32: 0.5})
    for level in (1, 32):
        mean = model.predict_level(model.rows, level)[0]
        assert np.corrcoef(mean, np.log([at(level, o) for o in seen]))[0, 1] > 0.95
    mix = model.predict(model.rows)[0]
    truth = [0.5 * np.log(at(1, o)) + 0.5 * np.log(at(32, o)) for o in seen]
    assert np.corrcoef(mix, truth)[0, 1] > 0.95


def test_gain_per_hour_prefers_the_cheap_among_equals() -> None:
    seen = [
        Observation(
            o.kind, o.params, o.features, o.key, 100.0, cost_s=3000.0 if o.params["algorithm"] == "eagle3" else 60.0
        )
        for o in observations(20)
    ]
    cheap = policy.propose(SPACE, seen, seed=0, options=policy.Options(per_hour=True))
    assert cheap.params["algorithm"] != "eagle3"


def test_the_logarithm_of_the_gain_is_smooth_far_below_the_best() -> None:
    mean = np.linspace(-3.0, 1.0, 400)
    gain = log_expected_gain(mean, np.full(400, 0.05), 0.0)
    assert np.all(np.isfinite(gain))
    assert np.all(np.diff(gain) > 0)


def test_the_maximum_is_found_without_asking_for_every_survival() -> None:
    rng = np.random.default_rng(0)
    score, chance = rng.normal(size=5000), rng.uniform(0.01, 1.0, 5000)
    asked: list[int] = []

    def survival(rows: np.ndarray) -> np.ndarray:
        asked.extend(rows)
        return np.asarray(chance[rows])

    found, best = most_promising(score, survival)
    assert found == int(np.argmax(score + np.log(chance)))
    assert best == pytest.approx(float(np.max(score + np.log(chance))))
    assert len(asked) < 2500


def test_the_objective_of_a_specification_becomes_options() -> None:
    from optimizer.spec import Limit

    options = policy.Options.for_objective({"ttft_p99_ms": Limit(max=800.0)}, {1: 0.7, 8: 0.3}, per_hour=True)
    assert options.per_hour
    assert options.limits == {"ttft_p99_ms": (None, 800.0)}
    assert options.levels == {1: 0.7, 8: 0.3}
