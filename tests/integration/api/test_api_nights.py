"""Nights: window runs, missed ones with the reason, the morning report, and its delivery to real receivers."""

from __future__ import annotations

import email
import hashlib
import hmac
import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email import policy
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from api import morning, nights
from api.settings import ApiSettings
from storage import hosts, shares, studies, webhooks, windows
from storage.engine import Database
from storage.records import WindowRecord
from tests.integration.api import filled
from tests.integration.api.conftest import Service

CREATED = datetime(2026, 3, 2, 12, tzinfo=UTC)
OPENS = datetime(2026, 3, 2, 22, tzinfo=UTC)
CLOSES = datetime(2026, 3, 3, 6, tzinfo=UTC)
AFTER = CLOSES + timedelta(minutes=10)
QUIET = ApiSettings()


def add_window(db: Database) -> WindowRecord:
    window = WindowRecord("w1", "nights", "0 22 * * *", "UTC", CREATED, until="06:00")
    with db.write() as conn:
        windows.put(conn, window)
    return window


def run_of(db: Database, local_date: str = "2026-03-02") -> Any:
    with db.read() as conn:
        return windows.get_run(conn, "w1", local_date)


def work_a_night(db: Database, **fields: Any) -> None:
    """A study of the window that worked in it."""
    study = filled.add_study(
        db, "kimi", window_id="w1", **{"state": "waiting_window", "home": {"argv": ["x"]}, **fields}
    )
    fence = filled.take_lease(db)
    for i in range(2):
        filled.add_trial(
            db, study, fence, kind="baseline", output_tok_s=90.0 + i, at=OPENS + timedelta(minutes=5 + 10 * i)
        )
    filled.add_trial(
        db, study, fence, params={"speculative-num-steps": 5}, output_tok_s=104.0, at=OPENS + timedelta(minutes=30)
    )
    filled.add_trial(
        db, study, fence, params={"mem-fraction-static": 0.95}, state="infeasible", failure=filled.OOM,
        at=OPENS + timedelta(minutes=50),
    )  # fmt: skip


def test_a_night_that_ran_is_written_down_once(db: Database) -> None:
    filled.add_host(db)
    add_window(db)
    for _ in range(3):
        nights.look(db, QUIET, OPENS + timedelta(minutes=1))
    assert run_of(db).status == "open"
    work_a_night(db)
    for _ in range(3):
        nights.look(db, QUIET, AFTER)
    run = run_of(db)
    assert (run.status, run.studies, run.reason) == ("ran", ["kimi"], "")
    told = run.report["studies"][0]
    assert told["starts_by_state"] == {"complete": 3, "infeasible": 1}
    assert told["best_tonight"] == {"speculative-num-steps": 5} and told["best_tonight_tok_s"] == 104.0
    assert told["failures"][0]["label"] == "oom_kv_cache"
    assert told["serves_now"] == "the original server"
    with db.read() as conn:
        assert len(windows.list_runs(conn, "w1")) == 1


@pytest.mark.parametrize(
    ("study", "reason"),
    [
        (None, "no study waits for this window"),
        ({"state": "paused"}, "kimi was paused"),
        ({"state": "finished"}, "every study of this window is finished"),
        ({"state": "waiting_window", "state_reason": "host is busy"}, "no worker took kimi (host is busy)"),
    ],
)
def test_a_night_that_was_watched_and_brought_nothing_says_why(db: Database, study: Any, reason: str) -> None:
    filled.add_host(db)
    add_window(db)
    if study:
        filled.add_study(db, "kimi", window_id="w1", **study)
    nights.look(db, QUIET, OPENS + timedelta(minutes=1))
    nights.look(db, QUIET, AFTER)
    assert (run_of(db).status, run_of(db).reason) == ("missed", reason)
    assert reason in run_of(db).report["headline"]


def test_nights_while_the_service_was_away_are_missed_with_that_reason(db: Database) -> None:
    add_window(db)
    nights.look(db, QUIET, CREATED + timedelta(days=3))
    with db.read() as conn:
        runs = windows.list_runs(conn, "w1")
    assert [(r.local_date, r.status, r.reason) for r in runs] == [
        (f"2026-03-0{day}", "missed", "the service was not running") for day in (4, 3, 2)
    ]


def test_a_window_that_is_switched_on_again_did_not_miss_its_nights(db: Database) -> None:
    add_window(db)
    told = ApiSettings(webhook_url="http://127.0.0.1:1/")
    with db.write() as conn:
        windows.update(conn, "w1", enabled=False)
    nights.look(db, told, OPENS + timedelta(minutes=1))
    assert run_of(db) is None
    nights.look(db, told, AFTER)
    with db.write() as conn:
        windows.update(conn, "w1", enabled=True)
    nights.look(db, told, AFTER)
    assert (run_of(db).status, run_of(db).reason) == ("missed", "the window was switched off")
    with db.read() as conn:
        assert webhooks.list_messages(conn) == []


def test_a_night_that_a_worker_used_while_the_service_was_away_is_no_missed_one(db: Database) -> None:
    filled.add_host(db)
    add_window(db)
    work_a_night(db)
    nights.look(db, QUIET, AFTER)
    assert (run_of(db).status, run_of(db).reason) == ("ran", "")
    assert run_of(db).report["headline"].startswith("4 starts for kimi")


def test_studies_that_were_over_long_before_are_no_part_of_a_night(db: Database) -> None:
    filled.add_host(db)
    add_window(db)
    filled.add_study(db, "old", window_id="w1", state="finished", finished_at=OPENS - timedelta(days=2))
    work_a_night(db)
    nights.look(db, QUIET, AFTER)
    assert [s["name"] for s in run_of(db).report["studies"]] == ["kimi"]


def test_every_host_of_a_study_is_looked_at_for_trouble(db: Database) -> None:
    for name in (filled.HOST, "second-box"):
        filled.add_host(db, name)
    add_window(db)
    work_a_night(db)
    with db.write() as conn:
        shares.add(conn, "id-kimi", [filled.HOST, "second-box"][1:])
        hosts.update(conn, "second-box", needs_attention="home does not answer")
    nights.look(db, QUIET, AFTER)
    report = run_of(db).report
    assert report["attention"] == ["host second-box: home does not answer"]
    assert "## kimi on gpu-box, second-box" in morning.to_markdown(report)


def test_a_window_that_cannot_be_told_does_not_keep_the_others_from_it(db: Database) -> None:
    add_window(db)
    with db.write() as conn:
        windows.put(conn, WindowRecord("w0", "broken", "0 22 * * *", "No/Zone", CREATED, until="06:00"))
    nights.look(db, QUIET, OPENS + timedelta(minutes=1))
    nights.look(db, QUIET, AFTER)
    assert run_of(db).report is not None


@pytest.mark.parametrize(
    "bad",
    [
        {"mail_from": "a@b.c\nBcc: all@b.c"},
        {"smtp_url": "smtp://127.0.0.1:not-a-port"},
    ],
)
def test_a_mail_that_cannot_be_written_holds_up_no_other_message(db: Database, hook: Hook, bad: dict[str, str]) -> None:
    add_window(db)
    hook.bodies.append(({}, b"the one that it refuses"))
    told = ApiSettings(**{"smtp_url": "smtp://127.0.0.1:1", "mail_to": "a@b.c", **bad})
    nights.look(db, told, AFTER)
    later = AFTER + timedelta(days=1)
    nights.look(db, told.model_copy(update={"webhook_url": hook.url}), later)
    assert len(hook.bodies) == 2
    with db.read() as conn:
        mails = [m for m in webhooks.list_messages(conn) if m.target == "mail"]
    assert all(m.last_error and m.attempts for m in mails)


def test_a_restore_that_takes_longer_still_belongs_to_the_night(db: Database) -> None:
    filled.add_host(db)
    add_window(db)
    nights.look(db, QUIET, OPENS + timedelta(minutes=1))
    work_a_night(db, state="stopping")
    nights.look(db, QUIET, CLOSES + timedelta(minutes=1))
    assert run_of(db).report is None
    with db.write() as conn:
        studies.move(conn, "id-kimi", from_states=["stopping"], to="waiting_window", now=CLOSES)
    nights.look(db, QUIET, CLOSES + timedelta(minutes=2))
    assert run_of(db).report["studies"][0]["state"] == "waiting_window"


def test_who_must_look_is_told(db: Database) -> None:
    filled.add_host(db)
    add_window(db)
    nights.look(db, QUIET, OPENS + timedelta(minutes=1))
    work_a_night(db, state="needs_attention", state_reason="pid 7 cannot be killed")
    with db.write() as conn:
        hosts.update(conn, filled.HOST, needs_attention="GPU memory does not come back")
    nights.look(db, QUIET, AFTER)
    report = run_of(db).report
    assert any("pid 7" in line for line in report["attention"]) and any(
        "GPU memory" in line for line in report["attention"]
    )
    assert report["studies"][0]["serves_now"].startswith("not known")


def test_a_report_is_read_over_http_in_every_form(service: Service) -> None:
    filled.add_host(service.db)
    add_window(service.db)
    nights.look(service.db, QUIET, OPENS + timedelta(minutes=1))
    work_a_night(service.db)
    nights.look(service.db, QUIET, AFTER)
    path = "/api/v1/windows/nights/nights/2026-03-02"
    assert service.client.get(path).json()["headline"].startswith("4 starts for kimi")
    page = service.client.get(f"{path}?format=html")
    assert "Morning report" in page.text and "<script" not in page.text
    text = service.client.get(f"{path}?format=md").text
    assert "## kimi on gpu-box" in text and "- serves now: the original server" in text
    assert service.client.get("/api/v1/windows/nights/nights/2026-03-09").status_code == 404
    listed = service.client.get("/api/v1/windows").json()["items"][0]["runs"][0]
    assert listed["status"] == "ran" and listed["has_report"]


class Hook:
    """A webhook receiver that refuses the first posts."""

    def __init__(self, refuse: int) -> None:
        self.bodies: list[tuple[dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.bodies.append((dict(self.headers), body))
                self.send_response(503 if len(outer.bodies) <= refuse else 204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def hook() -> Iterator[Hook]:
    receiver = Hook(refuse=1)
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


class Mailbox(socketserver.StreamRequestHandler):
    """The few words of SMTP that a mail needs."""

    received: ClassVar[list[str]] = []

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            word = line[:4].upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = []
                while (part := self.rfile.readline()) != b".\r\n":
                    lines.append(part.decode())
                self.received.append("".join(lines))
            self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            if word == b"QUIT":
                return


@pytest.fixture
def mail_port() -> Iterator[int]:
    Mailbox.received.clear()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mailbox) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_a_report_is_delivered_signed_and_again_until_it_is_taken(db: Database, hook: Hook) -> None:
    filled.add_host(db)
    add_window(db)
    told = ApiSettings(webhook_url=hook.url, webhook_secret="shared")
    nights.look(db, told, OPENS + timedelta(minutes=1))
    work_a_night(db)
    for minute in (0, 0, 2, 5, 30):
        nights.look(db, told, AFTER + timedelta(minutes=minute))
    assert len(hook.bodies) == 2
    headers, body = hook.bodies[1]
    signature = {k.lower(): v for k, v in headers.items()}["x-ratchet-signature"]
    assert signature == f"sha256={hmac.new(b'shared', body, hashlib.sha256).hexdigest()}"
    document = json.loads(body)
    assert document["report"]["window"] == "nights" and "## kimi" in document["text"]
    with db.read() as conn:
        assert [(m.state, m.attempts) for m in webhooks.list_messages(conn)] == [("sent", 2)]


def test_a_report_is_mailed_as_text_and_html(db: Database, mail_port: int) -> None:
    filled.add_host(db)
    add_window(db)
    told = ApiSettings(smtp_url=f"smtp://127.0.0.1:{mail_port}", mail_to=["ops@example.org", "me@example.org"])
    nights.look(db, told, OPENS + timedelta(minutes=1))
    work_a_night(db)
    for minute in (0, 1, 20):
        nights.look(db, told, AFTER + timedelta(minutes=minute))
    assert len(Mailbox.received) == 1
    mail = email.message_from_string(Mailbox.received[0], policy=policy.default)
    assert "nights 2026-03-02" in str(mail["Subject"]) and "me@example.org" in str(mail["To"])
    assert [part.get_content_type() for part in mail.iter_parts()] == ["text/plain", "text/html"]


def test_a_receiver_that_stays_away_is_given_up_and_blocks_nothing(db: Database) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    filled.add_host(db)
    add_window(db)
    told = ApiSettings(webhook_url=f"http://127.0.0.1:{port}/", smtp_url=f"smtp://127.0.0.1:{port}", mail_to=["a@b.c"])
    nights.look(db, told, OPENS + timedelta(minutes=1))
    work_a_night(db)
    at = AFTER
    for _ in range(9):
        nights.look(db, told, at)
        at += timedelta(hours=7)
    with db.read() as conn:
        found = webhooks.list_messages(conn)
    first = [m for m in found if m.payload["local_date"] == "2026-03-02"]
    assert {m.state for m in first} == {"given_up"} and all(m.last_error for m in first)


def test_settings_take_lists_by_comma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATCHET_MAIL_TO", "a@b.c, d@e.f")
    monkeypatch.setenv("RATCHET_ALLOWED_HOSTS", "tune.example.org")
    found = ApiSettings()
    assert found.mail_to == ["a@b.c", "d@e.f"] and found.allowed_hosts == ["tune.example.org"]
