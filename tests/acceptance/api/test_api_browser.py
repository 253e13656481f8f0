"""A real browser: starts a study, watches it live to its verdict, copies the command, pauses and resumes another.

The worker here is scripted (it writes what a worker writes), so that the test is about the pages; screenshots are kept
in the test's folder. Console errors and violations of the policy fail the test.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from optimizer import studies as verbs
from storage import events, studies, trials, verdicts
from storage.engine import Database
from storage.records import VerdictRecord
from tests.integration.api import filled
from tests.integration.api.conftest import LiveServer, Service, db, live, service

__all__ = ["db", "live", "service"]
pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0.99) return c;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const e of document.querySelectorAll("main *, header *")) {
    const speaks = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!speaks || !e.checkVisibility() || e.closest(".sr,:disabled,.chart,svg")) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push(`${e.tagName}.${e.className}: ${ratio.toFixed(2)} ${e.textContent.trim().slice(0, 30)}`);
  }
  return bad;
}"""
"""Text whose contrast is under 4.5 to 1."""


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


@pytest.fixture
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


class Watched:
    """A page whose console must stay quiet."""

    def __init__(self, browser: Any, url: str, **how: Any) -> None:
        self.context = browser.new_context(base_url=url, **how)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = self.context.new_page()
        self.noise: list[str] = []
        self.page.on("console", lambda m: self.noise.append(m.text) if m.type in {"error", "warning"} else None)
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))


def test_a_study_from_the_form_to_its_verdict(service: Service, live: LiveServer, browser: Any, tmp_path: Path) -> None:
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
    page.screenshot(path=tmp_path / "created.png")
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_text("Proven faster: +23.0 %").wait_for(timeout=60_000)
    page.locator("[data-live=head] .chip.finished").wait_for()
    assert page.locator("#trials tbody tr").count() == 4
    page.get_by_role("button", name="Copy").first.click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "--threads 8" in copied.replace("\\\n", "")
    page.get_by_label("Flag or failure").fill("threads=4")
    assert page.locator("#trials tbody tr:visible").count() == 1
    page.screenshot(path=tmp_path / "verdict.png", full_page=True)
    assert page.evaluate(CONTRAST) == []
    page.locator("#trials tbody tr:visible a").first.click()
    page.get_by_role("heading", name="Start").first.wait_for()
    assert watched.noise == []


def test_pausing_and_resuming_with_the_keyboard_after_signing_in(
    service: Service, live: LiveServer, browser: Any, tmp_path: Path
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
    assert page.evaluate(CONTRAST) == []
    page.screenshot(path=tmp_path / "dark.png")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    assert watched.noise == []


def test_every_page_on_a_phone_and_the_dashboard(
    service: Service, live: LiveServer, browser: Any, tmp_path: Path
) -> None:
    import optuna

    filled.add_host(service.db)
    filled.fill_night(service.db, explored=6)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=service.db.optuna_url, study_name="kimi-eagle3", direction="maximize")
    study.optimize(lambda trial: trial.suggest_int("steps", 1, 8), n_trials=6)
    watched = Watched(browser, live.url, viewport={"width": 375, "height": 800})
    for path in ("/", "/studies/kimi-eagle3", "/studies/kimi-eagle3/trials/0", "/hosts", "/windows", "/studies/new"):
        watched.page.goto(path)
        watched.page.wait_for_timeout(200)
        assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert watched.page.evaluate(CONTRAST) == [], path
        watched.page.screenshot(path=tmp_path / f"phone{path.replace('/', '-')}.png")
    assert watched.noise == []
    desk = Watched(browser, live.url)
    desk.page.goto("/dashboard")
    desk.page.get_by_text("kimi-eagle3").first.wait_for(timeout=60_000)
    desk.page.goto("/dashboard/studies/1")
    desk.page.get_by_text("Importance").first.wait_for(timeout=60_000)
    desk.page.screenshot(path=tmp_path / "optuna.png")
    refused = desk.page.evaluate("fetch('/api/studies/1', {method: 'DELETE'}).then((r) => r.status)")
    assert refused == 405
