"""What every noun promises, on both databases: things come back as they went in, and say clearly when they cannot."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from storage import events, hosts, keys, logs, measurements, studies, trials, verdicts, windows
from storage.engine import Database
from storage.errors import Duplicate, InvalidValue, Missing
from tests.contract.storage import samples
from tests.contract.storage.samples import HOST, NOW, TOKYO, later


def test_a_study_comes_back_as_it_was(db: Database) -> None:
    with db.write() as conn:
        windows.put(conn, samples.window())
        studies.create(conn, samples.study(window_id="w1"))
    with db.read() as conn:
        found = studies.get(conn, "s1")
    assert found == samples.study(window_id="w1")
    assert list(found.spec) == ["z", "a", "none"], "the order of keys decides the order of the search"
    assert found.created_at.tzinfo is UTC


def test_times_come_back_in_utc_whatever_zone_they_had(db: Database) -> None:
    there = NOW.astimezone(TOKYO)
    with db.write() as conn:
        studies.create(conn, samples.study(created_at=there))
        found = studies.get(conn, "s1")
    assert found.created_at == there
    assert found.created_at.utcoffset() == NOW.utcoffset()


def test_a_time_without_a_zone_is_refused(db: Database) -> None:
    naive = datetime(2026, 1, 1)
    with pytest.raises(Exception, match="without a zone"), db.write() as conn:
        studies.create(conn, samples.study(created_at=naive))


def test_a_study_is_found_by_id_before_name(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study(id="a", name="b"))
        studies.create(conn, samples.study(id="b", name="c"))
        assert studies.get(conn, "b").id == "b"
        assert studies.get(conn, "c").id == "b"
        with pytest.raises(Missing, match="no study zz"):
            studies.get(conn, "zz")


@pytest.mark.parametrize("same", [{"id": "s2"}, {"name": "other"}])
def test_a_taken_id_or_name_is_a_duplicate(db: Database, same: dict[str, str]) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study())
    with pytest.raises(Duplicate, match="exists already"), db.write() as conn:
        studies.create(conn, samples.study(**same))


def test_studies_are_paged_newest_first_without_gaps(db: Database) -> None:
    with db.write() as conn:
        for index in range(7):
            # Pairs share a time, so that the page border falls between equals.
            studies.create(conn, samples.study(id=f"s{index}", name=f"n{index}", created_at=later(index // 2)))
    seen: list[str] = []
    with db.read() as conn:
        while page := studies.list_studies(conn, limit=2, after=seen[-1] if seen else None):
            seen += [study.id for study in page]
    assert seen == ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]


def test_studies_are_filtered_by_state_and_host(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study(id="a", name="a", state="queued"))
        studies.create(conn, samples.study(id="b", name="b", state="paused"))
        studies.create(conn, samples.study(id="c", name="c", state="queued", host="other"))
        assert {s.id for s in studies.list_studies(conn, state="queued")} == {"a", "c"}
        assert {s.id for s in studies.list_studies(conn, state=["queued", "paused"], host=HOST)} == {"a", "b"}


def test_an_update_counts_the_version_and_keeps_the_rest(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study(version=1))
        updated = studies.update(conn, "s1", phase="confirm", verdict=None)
        assert updated == samples.study(version=2, phase="confirm", verdict=None)
        assert studies.update(conn, "s1", version=2, priority=9).version == 3
        with pytest.raises(Missing, match="version 2"):
            studies.update(conn, "s1", version=2, priority=1)
        with pytest.raises(TypeError, match="state"):
            studies.update(conn, "s1", state="running")
        with pytest.raises(Missing):
            studies.update(conn, "zz", priority=1)


def test_a_move_happens_only_from_the_named_states(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study(state="created", version=1))
        assert studies.move(conn, "s1", from_states=["created"], to="queued", reason="asked", now=later(9))
        assert not studies.move(conn, "s1", from_states=["created"], to="running", now=later(10))
        found = studies.get(conn, "s1")
    assert (found.state, found.state_reason, found.updated_at, found.version) == ("queued", "asked", later(9), 2)


def test_an_unknown_state_is_refused_by_the_schema(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study())
    with pytest.raises(InvalidValue), db.write() as conn:
        studies.move(conn, "s1", from_states=["created"], to="dreaming", now=NOW)


def test_a_trial_comes_back_as_it_was(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        assert samples.stored_trial(conn, fence, number=55) == 0
        assert samples.stored_trial(conn, fence, state="proposed") == 1
    with db.read() as conn:
        assert trials.get(conn, "s1", 0) == samples.trial(number=0, fence=fence)
        assert [t.number for t in trials.live(conn, "s1")] == [1]
        with pytest.raises(Missing):
            trials.get(conn, "s1", 2)


def test_trials_are_listed_by_number_state_and_kind(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        for kind in ["baseline", "explore", "explore", "confirm"]:
            samples.stored_trial(conn, fence, kind=kind, state="complete" if kind != "confirm" else "interrupted")

        def numbers(**filters: Any) -> list[int]:
            return [t.number for t in trials.list_trials(conn, "s1", **filters)]

        assert numbers() == [0, 1, 2, 3]
        assert numbers(limit=2) == [0, 1]
        assert numbers(limit=2, after=1) == [2, 3]
        assert numbers(newest_first=True, after=3, limit=2) == [2, 1]
        assert numbers(kinds=["explore"]) == [1, 2]
        assert numbers(states=["interrupted"]) == [3]
        assert trials.count_by_state(conn, "s1") == {"complete": 3, "interrupted": 1}


def test_the_best_trials_are_complete_explorations_by_speed(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        for kind, state, speed in [
            ("explore", "complete", 90.0),
            ("explore", "pruned", 99.0),
            ("confirm", "complete", 98.0),
            ("explore", "complete", 95.0),
            ("explore", "complete", None),
        ]:
            samples.stored_trial(conn, fence, kind=kind, state=state, output_tok_s=speed)
        assert [t.number for t in trials.best(conn, "s1", limit=5)] == [3, 0]


def test_trials_that_ended_untold_are_found(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        samples.stored_trial(conn, fence, told=False, state="measuring")
        samples.stored_trial(conn, fence, told=False, state="infeasible")
        samples.stored_trial(conn, fence, told=True)
        samples.stored_trial(conn, fence, told=False, optuna_number=None)
        assert [t.number for t in trials.untold(conn, "s1")] == [1]


def test_numbers_that_are_no_measurement_become_null(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        nan, inf = float("nan"), float("inf")
        samples.stored_trial(conn, fence, output_tok_s=nan, accept_len=inf, metrics={"a": nan, "b": [1.0, -inf]})
        found = trials.get(conn, "s1", 0)
    assert (found.output_tok_s, found.accept_len, found.metrics) == (None, None, {"a": None, "b": [1.0, None]})


def test_text_that_postgres_cannot_hold_is_cleaned(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        samples.stored_trial(conn, fence, launch_command="a\0b \udcff \U0001f680", failure={"evidence": ["\0\udcff"]})
        found = trials.get(conn, "s1", 0)
    assert found.launch_command == "a\ufffdb \ufffd \U0001f680"
    assert found.failure == {"evidence": ["\0\udcff"]}


def test_a_measurement_and_its_requests_come_back_whole(db: Database) -> None:
    wanted = samples.requests(5)
    with db.write() as conn:
        fence = samples.leased_study(conn)
        number = samples.stored_trial(conn, fence)
        first = measurements.add(conn, samples.measurement(), wanted, host=HOST, fence=fence)
        second = measurements.add(conn, samples.measurement(path="direct"), [], host=HOST, fence=fence)
    assert second > first
    with db.read() as conn:
        assert measurements.requests_of(conn, "s1", number) == wanted
        assert measurements.for_trial(conn, "s1", number) == [
            samples.measurement(id=first),
            samples.measurement(id=second, path="direct"),
        ]
        assert measurements.for_study(conn, "s1") == measurements.for_trial(conn, "s1", number)
        assert measurements.requests_of(conn, "s1", 99) == []


def test_a_measurement_of_no_trial_is_refused(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
    with pytest.raises(Missing), db.write() as conn:
        measurements.add(conn, samples.measurement(trial_number=9), [], host=HOST, fence=fence)


def test_a_log_comes_back_and_keeps_its_end_when_it_is_too_long(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        samples.stored_trial(conn, fence)
        logs.put(conn, "s1", 0, b"first\n\x00\xff")
        assert logs.get(conn, "s1", 0) == b"first\n\x00\xff"
        long = b"command line\n" + b"x" * 5000 + b"\nCUDA out of memory"
        logs.put(conn, "s1", 0, long, limit=1000)
        kept = logs.get(conn, "s1", 0)
        with pytest.raises(Missing):
            logs.get(conn, "s1", 1)
    assert kept.startswith(b"command line\n")
    assert kept.endswith(b"\nCUDA out of memory")
    assert b"bytes cut out here" in kept
    assert len(kept) < 1100


def test_events_are_read_in_order_from_where_one_stopped(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study())
        first = events.append(conn, "s1", "trial", {"n": 0}, NOW)
        service = events.append(conn, "", "started", {}, NOW)
        last = events.append(conn, "s1", "trial", {"n": 1}, later(1))
    with db.read() as conn:
        assert [e.id for e in events.since(conn, 0)] == [first, service, last]
        assert [e.data for e in events.since(conn, first, study_id="s1")] == [{"n": 1}]
        assert events.since(conn, 0, limit=2)[1].study_id == ""
        assert events.last_id(conn) == last
        assert events.since(conn, last) == []


def test_ids_of_removed_events_are_never_given_out_again(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study())
        last = events.append(conn, "s1", "trial", {}, NOW)
        studies.delete(conn, "s1")
        assert events.append(conn, "", "later", {}, NOW) > last


def test_verdicts_come_back_in_order(db: Database) -> None:
    with db.write() as conn:
        studies.create(conn, samples.study())
        first = verdicts.add(conn, samples.verdict(outcome="undecided"))
        second = verdicts.add(conn, samples.verdict())
        assert verdicts.for_study(conn, "s1") == [
            samples.verdict(outcome="undecided", id=first),
            samples.verdict(id=second),
        ]


def test_hosts_are_registered_changed_and_removed(db: Database) -> None:
    with db.write() as conn:
        hosts.put(conn, samples.host())
        hosts.put(conn, samples.host(name="a"))
        assert hosts.get(conn, HOST) == samples.host()
        assert [h.name for h in hosts.list_hosts(conn)] == ["a", HOST]
        again = hosts.put(conn, samples.host(entry={"connection": "local"}, facts={}, host_key=None))
        assert again == samples.host(entry={"connection": "local"}, version=2), "what was learnt stays"
        assert hosts.update(conn, HOST, needs_attention="").needs_attention == ""
        hosts.delete(conn, HOST)
        with pytest.raises(Missing, match="no host gpu-box"):
            hosts.get(conn, HOST)
        with pytest.raises(Missing):
            hosts.delete(conn, HOST)


def test_windows_open_at_most_once_a_day(db: Database) -> None:
    with db.write() as conn:
        windows.put(conn, samples.window())
        assert windows.get(conn, "nights") == samples.window()
        assert windows.open_run(conn, samples.window_run())
        assert not windows.open_run(conn, samples.window_run(opened_at=later(60)))
        windows.update_run(conn, "w1", "2026-10-25", status="ran", reason="done")
        assert windows.get_run(conn, "w1", "2026-10-25") == samples.window_run(status="ran", reason="done")
        assert windows.open_run(conn, samples.window_run(local_date="2026-10-26", opened_at=later(86400)))
        assert [r.local_date for r in windows.list_runs(conn, "w1")] == ["2026-10-26", "2026-10-25"]
        with pytest.raises(Duplicate):
            windows.put(conn, samples.window(id="w2"))


def test_removing_a_window_leaves_its_studies(db: Database) -> None:
    with db.write() as conn:
        windows.put(conn, samples.window())
        studies.create(conn, samples.study(window_id="w1"))
        windows.delete(conn, "w1")
        assert studies.get(conn, "s1").window_id is None
        assert windows.list_windows(conn) == []


def test_keys_are_found_by_prefix_and_revoked_once(db: Database) -> None:
    with db.write() as conn:
        keys.put(conn, samples.key())
        assert keys.by_prefix(conn, "rk_abcd") == samples.key()
        with pytest.raises(Duplicate):
            keys.put(conn, samples.key(id="k2", prefix="rk_2"))
        assert keys.revoke(conn, "k1", later(7)).revoked_at == later(7)
        assert keys.revoke(conn, "k1", later(8)).revoked_at == later(7)
        keys.put(conn, samples.key(id="k2", prefix="rk_2"))
        assert keys.get(conn, "grafana").id == "k2", "the key in force comes before the revoked one"
        keys.touch(conn, "k2", later(99))
        assert keys.get(conn, "k2").last_used_at == later(99)
        assert [k.id for k in keys.list_keys(conn)] == ["k1", "k2"]


def test_deleting_a_study_removes_all_of_it_and_nothing_else(db: Database) -> None:
    with db.write() as conn:
        fence = samples.leased_study(conn)
        studies.create(conn, replace(samples.study(), id="s2", name="other"))
        samples.stored_trial(conn, fence)
        samples.stored_trial(conn, fence, study_id="s2")
        measurements.add(conn, samples.measurement(), samples.requests(), host=HOST, fence=fence)
        logs.put(conn, "s1", 0, b"log")
        events.append(conn, "s1", "x", {}, NOW)
        verdicts.add(conn, samples.verdict())
        studies.delete(conn, "s1")
        assert [s.id for s in studies.list_studies(conn)] == ["s2"]
        assert measurements.for_study(conn, "s1") == []
        assert measurements.requests_of(conn, "s1", 0) == []
        assert events.since(conn, 0) == []
        assert len(trials.list_trials(conn, "s2")) == 1
        with pytest.raises(Missing):
            studies.delete(conn, "s1")
