"""Records with something in every field, to be stored and compared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Connection

from storage import leases, studies, trials
from storage.records import (
    HostRecord,
    KeyRecord,
    MeasurementRecord,
    RequestRecord,
    StudyRecord,
    TrialRecord,
    VerdictRecord,
    WindowRecord,
    WindowRunRecord,
)

NOW = datetime(2026, 10, 25, 0, 59, 59, 123456, tzinfo=UTC)
TOKYO = timezone(timedelta(hours=9))
HOST = "gpu-box"


def later(seconds: float) -> datetime:
    """Return a time after NOW."""
    return NOW + timedelta(seconds=seconds)


def study(**changes: Any) -> StudyRecord:
    """A study with every field filled."""
    fields: dict[str, Any] = {
        "id": "s1",
        "name": "kimi-night",
        "state": "created",
        "host": HOST,
        "engine": "sglang",
        "spec": {"z": 1, "a": {"tp-size": 8, "ratio": 0.1 + 0.2, "päth": "/models/ü\u0000"}, "none": None},
        "created_at": NOW,
        "phase": "explore",
        "state_reason": "waiting for 22:00",
        "engine_version": "0.5.9",
        "fingerprint": "f00d",
        "home": {"command": ["python3", "-m", "x"], "env": {"A": "1"}},
        "hardware": {"gpus": [{"name": "H200", "mem_mib": 143771}]},
        "verdict": {"outcome": "win", "ratio": 1.0625},
        "best_trial": 3,
        "priority": 2,
        "run_dir": "~/.ratchet",
        "started_at": later(1),
        "finished_at": later(2),
        "updated_at": later(3),
        "version": 4,
    }
    return StudyRecord(**{**fields, **changes})


def trial(**changes: Any) -> TrialRecord:
    """A trial with every field filled."""
    fields: dict[str, Any] = {
        "study_id": "s1",
        "number": 0,
        "kind": "explore",
        "state": "complete",
        "arm": "k:abc",
        "params": {"zeta": 1, "alpha": True, "mem": 0.85},
        "created_at": NOW,
        "effective": {"tp": 8},
        "canonical_key": "k:abc",
        "phase": "stop",
        "launch_command": "python3 -m sglang.launch_server --tp 8 # \u00e9\u4e2d",
        "env_names": ["NCCL_PROTO"],
        "run_id": "r-1",
        "host": HOST,
        "engine_version": "0.5.9",
        "driver_version": "570.1",
        "timings": {"launch_s": 1.5, "load_s": 93.25},
        "output_tok_s": 91.7,
        "accept_len": 2.25,
        "accept_rate": 0.625,
        "step_ms": 11.5,
        "metrics": {"ttft_p99_ms": 812.0, "error_rate": 0.0},
        "failure": {"label": "none", "evidence": ["a", "b"]},
        "output_check": {"same": 5},
        "running_config": {"tp_size": 8},
        "warnings": ["clock drifted"],
        "optuna_number": 7,
        "told": True,
        "attempt": 2,
        "fence": 1,
        "started_at": later(5),
        "finished_at": later(600),
    }
    return TrialRecord(**{**fields, **changes})


def measurement(**changes: Any) -> MeasurementRecord:
    """A measurement with every field filled."""
    fields: dict[str, Any] = {
        "study_id": "s1",
        "trial_number": 0,
        "workload_fingerprint": "w1",
        "path": "tunnel",
        "tok_s": {"essay": [91.5, 90.25], "code": [120.0]},
        "metrics": {"ttft_p99_ms": 40.5},
        "started_at": later(100),
        "bench_s": 33.5,
        "ended_early": True,
        "early_reason": "far below the incumbent",
        "warnings": ["slow client"],
    }
    return MeasurementRecord(**{**fields, **changes})


def requests(count: int = 3) -> list[RequestRecord]:
    """Raw requests: one that worked, one with odd text, and one that failed before its first token."""
    good = RequestRecord(
        prompt="essay",
        kind="measured",
        concurrency=1,
        repeat=0,
        start_s=0.1,
        first_token_s=0.1 + 1 / 3,
        end_s=3.3,
        prompt_tokens=31,
        output_tokens=4,
        stream_tokens=4,
        token_times_s=[0.1 + 1 / 3, 0.5, 1e-9, 2.0000000001],
        chunk_tokens=[1, 2, 1],
        finish_reason="length",
        error=None,
        text="Once \u00fcpon \u0000 a \U0001f680 time",
        engine_timings={"prompt_ms": 12.5},
    )
    failed = RequestRecord(
        prompt="code",
        kind="warmup",
        concurrency=8,
        repeat=1,
        start_s=4.0,
        first_token_s=None,
        end_s=5.0,
        prompt_tokens=0,
        output_tokens=0,
        stream_tokens=0,
        token_times_s=[],
        chunk_tokens=[],
        finish_reason=None,
        error="connection reset",
        text="",
    )
    return [good if index % 2 == 0 else failed for index in range(count)]


def verdict(**changes: Any) -> VerdictRecord:
    """A verdict with every field filled."""
    fields: dict[str, Any] = {
        "study_id": "s1",
        "candidate_key": "k:abc",
        "outcome": "win",
        "ratio": 1.05,
        "ci_low": 1.02,
        "ci_high": 1.08,
        "restarts": 6,
        "pairs": {"baseline": [[90.0]], "candidate": [[95.0]]},
        "at": NOW,
    }
    return VerdictRecord(**{**fields, **changes})


def host(**changes: Any) -> HostRecord:
    """A host with every field filled."""
    fields: dict[str, Any] = {
        "name": HOST,
        "entry": {"connection": "ssh", "ssh": {"alias": HOST}},
        "created_at": NOW,
        "host_key": "SHA256:abc",
        "needs_attention": "a stop could not be proved",
        "facts": {"driver": "570"},
        "home": {"command": ["x"]},
    }
    return HostRecord(**{**fields, **changes})


def window(**changes: Any) -> WindowRecord:
    """A window with every field filled."""
    fields: dict[str, Any] = {
        "id": "w1",
        "name": "nights",
        "start_cron": "0 22 * * *",
        "timezone": "Europe/Berlin",
        "created_at": NOW,
        "until": "06:00",
        "duration_min": 480,
        "enabled": False,
    }
    return WindowRecord(**{**fields, **changes})


def window_run(**changes: Any) -> WindowRunRecord:
    """An opening with every field filled."""
    fields: dict[str, Any] = {
        "window_id": "w1",
        "local_date": "2026-10-25",
        "opened_at": NOW,
        "closes_at": later(3600),
        "status": "open",
        "reason": "",
        "studies": ["s1"],
        "report": {"trials": 12},
    }
    return WindowRunRecord(**{**fields, **changes})


def key(**changes: Any) -> KeyRecord:
    """An API key with every field filled."""
    fields: dict[str, Any] = {
        "id": "k1",
        "name": "grafana",
        "prefix": "rk_abcd",
        "hash": "00ff",
        "scopes": ["viewer"],
        "created_at": NOW,
        "expires_at": later(99),
        "last_used_at": later(5),
    }
    return KeyRecord(**{**fields, **changes})


def leased_study(conn: Connection, *, study_id: str = "s1", host_name: str = HOST) -> int:
    """Store a study, claim its host, and return the fence."""
    studies.create(conn, study(id=study_id, name=f"study-{study_id}", host=host_name))
    fence = leases.claim(conn, host_name, "worker-1", ttl_s=60, now=NOW, study_id=study_id)
    assert fence is not None
    return fence


def stored_trial(conn: Connection, fence: int, **changes: Any) -> int:
    """Store a trial and return its number."""
    return trials.add(conn, trial(**changes), host=HOST, fence=fence)
