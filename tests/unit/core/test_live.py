"""What the terminal shows of a study, from events and rows alone."""

from __future__ import annotations

import math

from rich.console import Console

from api.cli.live import View, table
from storage import events, trials
from storage.engine import Database
from storage.records import StudyRecord, TrialRecord
from tests.unit.core.test_studies import NOW, new_study


def seen(db: Database, study: StudyRecord, *told: tuple[str, dict[str, object]]) -> list[str]:
    with db.write() as conn:
        for kind, data in told:
            events.append(conn, study.id, kind, dict(data), NOW)
    return View(db, study.id, planned_trials=10).refresh()


def add_trial(db: Database, study: StudyRecord, **values: object) -> TrialRecord:
    from storage import leases

    with db.write() as conn:
        fence = leases.claim(conn, study.host, "t", ttl_s=1e6, now=NOW)
        if fence is None:
            held = leases.get(conn, study.host)
            assert held is not None
            fence = held.fence
        fields = {
            "study_id": study.id, "number": -1, "kind": "explore", "state": "complete", "arm": "k", "params": {},
            "created_at": NOW, "started_at": NOW, "finished_at": NOW, "fence": fence, **values,
        }  # fmt: skip
        record = TrialRecord(**fields)  # type: ignore[arg-type]
        number = trials.add(conn, record, host=study.host, fence=fence)
        events.append(conn, study.id, "trial", {"number": number, "state": record.state}, NOW)
        return trials.get(conn, study.id, number)


def test_a_look_without_an_interval_yet_is_shown_and_does_not_crash(db: Database) -> None:
    study = new_study(db)
    look = {"outcome": "undecided", "ratio": 1.02, "ci_low": 0.0, "ci_high": None, "restarts": 1}
    assert seen(db, study, ("verdict", look))[-1].endswith("too early for an interval after 1 restarts")
    wide = look | {"ci_low": 0.0001, "ci_high": 6890963.8, "restarts": 5}
    assert seen(db, study, ("verdict", wide))[-1].endswith("too early for an interval after 5 restarts")
    told = look | {"ci_low": 0.95, "ci_high": 1.1, "restarts": 6}
    assert "[0.950, 1.100]" in seen(db, study, ("verdict", told))[-1]


def test_a_finished_trial_shows_only_searched_flags_that_differ(db: Database) -> None:
    study = new_study(db)
    base = {"threads": 2, "flash-attn": "on", "internal": 1}
    add_trial(db, study, kind="baseline", arm="baseline", effective=base, output_tok_s=90.0)
    add_trial(
        db, study, effective={**base, "threads": 1, "internal": 2, "model-draft": "/a/b/draft.gguf"},
        params={"threads": 1}, output_tok_s=101.5, accept_len=2.25,
    )  # fmt: skip
    lines = seen(db, study)
    assert "(as home)" in lines[-2]
    assert "model-draft=draft.gguf threads=1" in lines[-1] and "internal" not in lines[-1]
    assert "101.5 tok/s accept 2.25" in lines[-1]


def test_a_failure_is_shown_with_its_cause(db: Database) -> None:
    study = new_study(db)
    add_trial(db, study, state="infeasible", failure={"label": "oom_kv_cache", "summary": "no room for the cache"})
    assert "oom_kv_cache: no room for the cache" in seen(db, study)[-1]


def test_the_live_table_can_be_drawn_at_every_stage(db: Database) -> None:
    study = new_study(db)
    view = View(db, study.id, planned_trials=3)
    console = Console(width=100, record=True)
    console.print(table(view))
    add_trial(db, study, kind="baseline", arm="baseline", effective={}, output_tok_s=90.0)
    add_trial(db, study, state="measuring", phase="measure", finished_at=None)
    add_trial(db, study, state="pruned", output_tok_s=50.0)
    view.refresh()
    console.print(table(view))
    text = console.export_text()
    assert "home 90.0 tok/s" in text and "cut short" in text and "measure" in text
    assert math.isclose(view.baseline_tok_s() or 0, 90.0)
