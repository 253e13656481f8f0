"""A database with studies as a night leaves them, for tests of everything that shows them. Numbers are made up."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy

from storage import events, hosts, leases, logs, measurements, migrate, series, studies, trials, verdicts
from storage.engine import Database, open_database
from storage.records import (
    HostRecord,
    MeasurementRecord,
    RequestRecord,
    SeriesRecord,
    StudyRecord,
    TrialRecord,
    VerdictRecord,
)

START = datetime(2026, 3, 2, 21, 0, tzinfo=UTC)
PROMPTS = ("code", "prose", "reasoning", "json", "summary")
HOST = "gpu-box"
SPEC: dict[str, Any] = {
    "name": "kimi-eagle3",
    "host": HOST,
    "engine": "sglang",
    "launch": {
        "command": ["python3", "-m", "sglang.launch_server"],
        "flags": {
            "model-path": "/shared/kimi-k2.5-int4",
            "tp-size": 8,
            "port": 8000,
            "speculative-algorithm": "EAGLE3",
            "speculative-num-steps": 3,
            "speculative-eagle-topk": 1,
            "speculative-num-draft-tokens": 4,
            "mem-fraction-static": 0.85,
        },
        "env": {"NCCL_P2P_LEVEL": "SYS"},
    },
    "space": {"parameters": {"speculative-num-steps": {"int": [1, 8]}, "disable-cuda-graph": {"flag": True}}},
    "workload": {"preset": "five-prompts", "max_tokens": 256},
    "budget": {"trials": 40, "hours": 8, "confirm_restarts": 10},
    "on_finish": "restore",
}


@cache
def _migrated() -> bytes:
    """A migrated, empty database file: migrating takes most of a second, and hundreds of tests want one."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "template.db"
        db = open_database(f"sqlite:///{path}")
        migrate.upgrade(db)
        db.close()
        return path.read_bytes()


def new_database(folder: Path) -> Database:
    """Return an empty, migrated database in `folder`."""
    path = folder / "ratchet.db"
    path.write_bytes(_migrated())
    db = open_database(f"sqlite:///{path}")
    # No test pulls the plug; waiting for the disk on each of hundreds of commits would be most of its time.
    sqlalchemy.event.listen(db.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    db.engine.dispose()
    return db


def add_host(db: Database, name: str = HOST) -> None:
    """Register a host, with a home whose environment must never be shown."""
    entry = {"name": name, "connection": "ssh", "ssh": {"alias": name}, "takeover": True, "gpus": list(range(8))}
    home = {"argv": ["python3", "-m", "sglang.launch_server"], "env": {"HF_TOKEN": "hf_secret"}, "port": 8000}
    with db.write() as conn:
        hosts.put(conn, HostRecord(name=name, entry=entry, created_at=START, home=home))


def add_study(db: Database, name: str = "kimi-eagle3", **fields: Any) -> StudyRecord:
    """Store a study of the host."""
    record = StudyRecord(
        id=fields.pop("id", f"id-{name}"),
        name=name,
        state=fields.pop("state", "created"),
        host=fields.pop("host", HOST),
        engine="sglang",
        engine_version="0.5.23",
        spec={**SPEC, "name": name},
        created_at=fields.pop("created_at", START),
        **fields,
    )
    with db.write() as conn:
        studies.create(conn, record)
    return record


def take_lease(db: Database, host: str = HOST) -> int:
    """Take the host, or go on with the lease that this test holds, and return the fence to write trials with."""
    with db.write() as conn:
        held = leases.get(conn, host)
        fence = held.fence if held else leases.claim(conn, host, "test", ttl_s=1.0, now=START - timedelta(hours=1))
    assert fence is not None
    return fence


def command(params: dict[str, Any]) -> str:
    """Return a launch command with these flags over the baseline's."""
    flags = {**SPEC["launch"]["flags"], **params}
    words = " ".join(f"--{k}" if v is True else f"--{k} {v}" for k, v in flags.items() if v is not False)
    return f"NCCL_P2P_LEVEL=SYS python3 -m sglang.launch_server {words}"


def add_trial(db: Database, study: StudyRecord, fence: int, **fields: Any) -> int:
    """Store one finished trial with its event and return its number."""
    params = fields.pop("params", {})
    at = fields.pop("at", START)
    record = TrialRecord(
        study_id=study.id,
        number=0,
        kind=fields.pop("kind", "explore"),
        state=fields.pop("state", "complete"),
        arm=fields.pop("arm", "baseline" if not params else f"key-{sorted(params.items())}"),
        params=params,
        created_at=at,
        started_at=at,
        finished_at=at + timedelta(minutes=9),
        effective={**SPEC["launch"]["flags"], **params},
        launch_command=command(params),
        timings=fields.pop(
            "timings", {"launch_s": 0.4, "load_s": 290.0, "ready_s": 11.0, "measure_s": 92.0, "stop_s": 21.0}
        ),
        **fields,
    )
    record = replace(record, canonical_key=record.canonical_key or record.arm)
    with db.write() as conn:
        number = trials.add(conn, record, host=study.host, fence=fence)
        data = {"number": number, "kind": record.kind, "state": record.state, "output_tok_s": record.output_tok_s}
        events.append(conn, study.id, "trial", data, at)
    return number


def add_measurement(db: Database, study: StudyRecord, number: int, fence: int, tok_s: float) -> None:
    """Store a measurement with raw requests and a log for one trial."""
    rng = random.Random(number)
    requests = []
    for i, prompt in enumerate(PROMPTS):
        start = i * 2.8
        times = [start + 0.2 + j * 0.03 for j in range(80)]
        requests.append(
            RequestRecord(
                prompt, prompt, 1, 0, start, times[0], times[-1], 120, 240, 240, times, [3] * 80, "length", None,
                "text of the answer", {},
            )
        )  # fmt: skip
    record = MeasurementRecord(
        study_id=study.id,
        trial_number=number,
        workload_fingerprint="w1",
        path="tunnel",
        tok_s={p: [tok_s * rng.uniform(0.97, 1.03)] for p in PROMPTS},
        metrics={"output_tok_s": tok_s, "ttft_p99_ms": 210.0, "itl_p50_ms": 11.0, "error_rate": 0.0},
        started_at=START,
        bench_s=14.0,
    )
    with db.write() as conn:
        measurements.add(conn, record, requests, host=study.host, fence=fence)
        times = [i * 0.5 for i in range(30)]
        counted = [("engine", "decode_tok_s", tok_s), ("gpu0", "power_w", 620.0), ("gpu1", "power_w", 605.0)]
        series.put(
            conn,
            [
                SeriesRecord(study.id, number, source, name, START, times, [v * rng.uniform(0.95, 1.05) for _ in times])
                for source, name, v in counted
            ],
            host=study.host,
            fence=fence,
        )
        logs.put(
            conn,
            study.id,
            number,
            b"[2026-03-02 21:00:01] server_args=...\nThe server is fired up and ready to roll!\n",
        )


def add_live_trial(db: Database, study: StudyRecord, now: datetime) -> int:
    """Store a start that is loading now, with the events and the end of the log that the worker has written so far."""
    fence = take_lease(db, study.host)
    record = TrialRecord(
        study.id, 0, "explore", "launching", "key-live", {"speculative-num-steps": 6}, now, phase="load",
        effective=SPEC["launch"]["flags"], launch_command=command({"speculative-num-steps": 6}), started_at=now,
    )  # fmt: skip
    with db.write() as conn:
        number = trials.add(conn, record, host=study.host, fence=fence)
        for i, phase in enumerate(("preflight", "launch", "load")):
            events.append(conn, study.id, "phase", {"number": number, "phase": phase}, now + timedelta(seconds=i))
        events.append(conn, study.id, "stage", {"number": number, "stage": "Capture cuda graph begin"}, now)
        lines = [f"[21:44:{i:02d} TP0] Load weight: {i * 3} % done" for i in range(30)]
        logs.put(conn, study.id, number, "\n".join(lines).encode(), host=study.host, fence=fence)
    return number


def examine(db: Database, name: str = HOST) -> None:
    """Store findings of the doctor for a host."""
    found = [
        ("ssh", "ok", "connected and logged in, 0.31 s", ""),
        ("gpus", "ok", "8 x NVIDIA H100 80GB HBM3, driver 560.35.03", ""),
        ("gpu users", "warning", "GPU 3: python3 of ana 41022 MiB", "ask them, or leave GPU 3 out of the host's file"),
        ("port", "ok", "8000 is held by python3 (pid 4711)", ""),
        ("guard", "ok", "none armed", ""),
    ]
    findings = [dict(zip(("check", "level", "detail", "remedy"), f, strict=True)) | {"data": {}} for f in found]
    with db.write() as conn:
        hosts.update(conn, name, facts={"doctor": {"checked_at": START.isoformat(), "findings": findings}})


def account(params: dict[str, Any]) -> dict[str, Any]:
    """What the search says each change of a winner brought."""
    parts = [
        {"name": name, "home": None, "winner": value, "gain": 0.11 - 0.06 * i, "sd": 0.012, "sure": i < 2,
         "possible": True, "against": {}}
        for i, (name, value) in enumerate(params.items())
    ]  # fmt: skip
    edge = {"name": "mem-fraction-static", "value": 0.9, "side": "highest", "advice": "raise its limit above 0.9"}
    return {"contributions": parts, "no_effect": ["speculative-attention-mode"], "edges": [edge]}


OOM = {
    "label": "oom_kv_cache",
    "engine": "sglang",
    "summary": "not enough memory for the KV cache beside the draft model",
    "remedy": "lower mem-fraction-static, or speculative-num-draft-tokens",
    "evidence": ["RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."],
    "blame": "config",
    "retry": False,
    "stop_study": False,
    "confidence": 0.9,
}


def fill_night(db: Database, name: str = "kimi-eagle3", *, explored: int = 24, state: str = "finished") -> StudyRecord:
    """Store a whole study: two baselines, explored starts with failures, a confirmation, a verdict."""
    rng = random.Random(7)
    study = add_study(
        db, name, state=state, phase="finish", started_at=START, home={"argv": ["x"], "env": {"HF_TOKEN": "hf_secret"}}
    )
    fence = take_lease(db, study.host)
    clock = [START]

    def trial(**fields: Any) -> int:
        clock[0] += timedelta(minutes=10)
        return add_trial(db, study, fence, at=clock[0], **fields)

    for _ in range(2):
        number = trial(kind="baseline", output_tok_s=90.0 * rng.uniform(0.985, 1.015), accept_len=2.31, step_ms=25.6)
        add_measurement(db, study, number, fence, 90.0)
    best: tuple[float, int, dict[str, Any]] = (0.0, -1, {})
    for i in range(explored):
        steps = rng.choice([2, 3, 4, 5, 6, 7])
        topk = rng.choice([1, 1, 2, 4])
        params: dict[str, Any] = {
            "speculative-num-steps": steps,
            "speculative-eagle-topk": topk,
            "speculative-num-draft-tokens": steps + 1 if topk == 1 else rng.choice([8, 16, 24]),
            "mem-fraction-static": rng.choice([0.8, 0.85, 0.9]),
        }
        if i % 9 == 5:
            params["disable-cuda-graph"] = True
        if params["mem-fraction-static"] == 0.9 and topk == 4:
            trial(params=params, state="infeasible", failure=OOM, timings={"launch_s": 0.4, "load_s": 95.0})
            continue
        accept = 1.6 + 0.35 * steps**0.7 + 0.25 * (topk > 1)
        step = 18.0 + 1.2 * steps + 1.5 * topk + (9 if "disable-cuda-graph" in params else 0)
        speed = 1000 * accept / step * rng.uniform(0.98, 1.02)
        pruned = speed < 78
        number = trial(
            params=params, state="pruned" if pruned else "complete", output_tok_s=speed, accept_len=accept, step_ms=step
        )
        if not pruned and speed > best[0]:
            best = (speed, number, params)
    for _ in range(4):
        trial(
            kind="confirm", params=best[2], output_tok_s=best[0] * rng.uniform(0.98, 1.01), accept_len=2.9, step_ms=26.0
        )
        trial(kind="confirm", output_tok_s=90.0 * rng.uniform(0.985, 1.015), accept_len=2.31, step_ms=25.6)
    ratio = best[0] * 0.995 / 90.0
    key = f"key-{sorted(best[2].items())}"
    look = VerdictRecord(study.id, key, "win", ratio, ratio - 0.021, ratio + 0.024, 8, {}, clock[0])
    with db.write() as conn:
        verdicts.add(conn, look)
        record = studies.update(
            conn,
            study.id,
            verdict={
                "outcome": "win",
                "ratio": ratio,
                "ci_low": look.ci_low,
                "ci_high": look.ci_high,
                "restarts": 8,
                "params": best[2],
                "changes": account(best[2]),
            },
            best_trial=best[1],
            finished_at=clock[0] if state == "finished" else None,
        )
        events.append(conn, study.id, "study", {"state": state}, clock[0])
    return record
