"""The pages in a real browser, every one of them, light and dark, on a desk and on a phone.

The worker here is scripted (it writes what a worker writes), so that the tests are about the pages; the real run is
`test_api_real_run.py`. Console errors, violations of the policy and complaints of axe fail a test.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from optimizer import studies as verbs
from storage import events, studies, trials, verdicts
from storage.engine import Database
from storage.records import VerdictRecord
from tests.acceptance.api.browsing import PHONE, Watched, browser, complaints
from tests.integration.api import filled
from tests.integration.api.conftest import LiveServer, Service, db, live, service
from tests.integration.api.specs import WINDOW

__all__ = ["browser", "db", "live", "service"]
pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]


class ScriptedWorker:
    """Writes into the database what a worker writes while it works on a study."""

    def __init__(self, database: Database, study_id: str) -> None:
        self.db = database
        self.study_id = study_id
        threading.Thread(target=self._run, daemon=True).start()

    def _say(self, kind: str, **data: Any) -> None:
        with self.db.write() as conn:
            events.append(conn, self.study_id, kind, data, datetime.now(UTC))

    def _run(self) -> None:
        now = datetime.now(UTC)
        while verbs.get(self.db, self.study_id).state != "queued":
            time.sleep(0.05)
        verbs.move(self.db, self.study_id, {verbs.StudyState.QUEUED}, verbs.StudyState.RUNNING, "", now)
        study = verbs.get(self.db, self.study_id)
        fence = filled.take_lease(self.db)
        for kind, params, speed in (("baseline", {}, 90.0), ("baseline", {}, 91.0), ("explore", {"threads": 4}, 99.0),
                                    ("explore", {"threads": 8}, 111.0)):  # fmt: skip
            with self.db.write() as conn:
                studies.update(conn, study.id, phase=kind, started_at=now)
            self._say("phase", number=0, phase="load")
            filled.add_trial(
                self.db, study, fence, kind=kind, params=params, output_tok_s=speed, accept_len=2.0, at=now
            )
            time.sleep(0.4)
        with self.db.write() as conn:
            verdicts.add(conn, VerdictRecord(study.id, "k", "win", 1.23, 1.2, 1.26, 6, {}, now))
            best = trials.best(conn, study.id)[0].number
            verdict = {"outcome": "win", "ratio": 1.23, "ci_low": 1.2, "ci_high": 1.26, "restarts": 6}
            studies.update(conn, study.id, verdict=verdict, best_trial=best, phase="finish")
        verbs.move(self.db, study.id, {verbs.StudyState.RUNNING}, verbs.StudyState.FINISHED, "", datetime.now(UTC))


def test_a_study_from_the_form_to_its_verdict(service: Service, live: LiveServer, browser: Any) -> None:
    filled.add_host(service.db)
    watched = Watched(browser, live.url)
    page = watched.page
    page.goto("/")
    page.get_by_role("link", name="Create the first study").click()
    page.get_by_role("button", name="llama.cpp").click()
    page.get_by_text("This can be used.").wait_for()
    area = page.get_by_label("Specification")
    text = area.input_value()
    area.fill(text.replace("engine: llamacpp", "engine: llamacp"))
    page.get_by_text("did you mean llamacpp").wait_for()
    assert page.get_by_role("button", name="Create and start").is_disabled()
    area.fill(text)
    page.get_by_text("This can be used.").wait_for()
    page.get_by_role("button", name="Create only").click()
    page.get_by_role("heading", name="llamacpp-threads").wait_for()
    ScriptedWorker(service.db, verbs.get(service.db, "llamacpp-threads").id)
    watched.shoot("created")
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_text("Proven faster: +23.0 %").wait_for(timeout=60_000)
    page.locator("[data-live=head] .chip.finished").wait_for()
    assert page.locator("#trials tbody tr").count() == 4
    copied = watched.copied(page.locator("[data-copy=best-command]"))
    assert "--threads 8" in copied.replace("\\\n", "")
    page.get_by_label("Flag or failure").fill("threads=4")
    assert page.locator("#trials tbody tr:visible").count() == 1
    watched.shoot("verdict")
    assert complaints(page) == []
    page.locator("#trials tbody tr:visible a").first.click()
    page.get_by_role("heading", name="Start").first.wait_for()
    assert watched.noise == []


def test_pausing_and_resuming_with_the_keyboard_after_signing_in(
    service: Service, live: LiveServer, browser: Any
) -> None:
    filled.add_host(service.db)
    filled.add_study(service.db, "night", state="queued")
    service.make_keys()
    watched = Watched(browser, live.url, color_scheme="dark")
    page = watched.page
    page.goto("/studies/night")
    page.get_by_label("API key").fill(service.tokens["operator"])
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="night").wait_for()
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    page.locator("[data-live=head] .chip.paused").wait_for()
    page.get_by_role("button", name="Resume").focus()
    page.keyboard.press("Enter")
    page.locator("[data-live=head] .chip.queued").wait_for()
    assert complaints(page) == []
    watched.shoot("dark")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    assert watched.noise == []


PAGES = {
    "studies": "/",
    "study": "/studies/kimi-eagle3",
    "running": "/studies/running",
    "trial": "/studies/kimi-eagle3/trials/0",
    "failed-trial": "/studies/kimi-eagle3/trials/13",
    "hosts": "/hosts",
    "windows": "/windows",
    "new": "/studies/new",
    "keys": "/keys",
}


@pytest.mark.parametrize(
    ("look", "how"), [("light", {}), ("dark", {"color_scheme": "dark"}), ("phone", {"viewport": PHONE})]
)
def test_every_page_is_fit_for_everybody(
    service: Service, live: LiveServer, browser: Any, look: str, how: dict[str, Any]
) -> None:
    filled.add_host(service.db)
    filled.examine(service.db)
    filled.fill_night(service.db)
    running = filled.add_study(service.db, "running", state="running", phase="explore")
    filled.add_live_trial(service.db, running, datetime.now(UTC))
    service.call("POST", "/api/v1/windows", WINDOW)
    watched = Watched(browser, live.url, **how)
    for name, path in PAGES.items():
        watched.page.goto(path)
        assert complaints(watched.page) == [], path
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        watched.shoot(f"{look}-{name}")
    watched.page.goto("/studies/running")
    watched.page.get_by_text("Capture cuda graph begin").first.wait_for()
    watched.page.locator("#live-log").get_by_text("Load weight: 87 % done").wait_for()
    assert watched.noise == []


def test_empty_pages_and_the_login_are_fit_for_everybody(service: Service, live: LiveServer, browser: Any) -> None:
    watched = Watched(browser, live.url)
    for path in ("/", "/hosts", "/windows", "/keys"):
        watched.page.goto(path)
        assert complaints(watched.page) == [], path
    service.make_keys()
    watched.page.goto("/")
    watched.page.get_by_role("heading", name="Sign in").wait_for()
    assert complaints(watched.page) == []
    watched.shoot("login")
    assert watched.noise == []


def test_the_dashboard_shows_a_study_and_its_importances_and_deletes_nothing(
    service: Service, live: LiveServer, browser: Any
) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=service.db.optuna_url, study_name="kimi-eagle3", direction="maximize")
    study.optimize(lambda trial: trial.suggest_int("steps", 1, 8), n_trials=6)
    desk = Watched(browser, live.url)
    desk.page.goto("/dashboard")
    desk.page.get_by_text("kimi-eagle3").first.wait_for()
    desk.page.goto("/dashboard/studies/1")
    desk.page.locator("text=History >> visible=true").first.wait_for()
    desk.page.locator("text=Importance >> visible=true").first.wait_for()
    desk.shoot("optuna")
    refused = desk.page.evaluate("fetch('/api/studies/1', {method: 'DELETE'}).then((r) => r.status)")
    assert refused == 405
    assert [s.study_name for s in optuna.get_all_study_summaries(service.db.optuna_url)] == ["kimi-eagle3"]
