"""The pages without a browser: who sees what, signing in, CSRF, the dashboard behind the same door."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import optuna
import pytest

from api.auth import COOKIE
from api.pages import trial
from storage import events
from tests.integration.api import filled
from tests.integration.api.conftest import Service
from tests.integration.api.specs import WINDOW, spec

HTML = {"Accept": "text/html"}
PAGES = ("/", "/studies/kimi-eagle3", "/studies/kimi-eagle3/trials/0", "/hosts", "/windows", "/studies/new", "/keys")


class Outline(HTMLParser):
    """Collects what a screen reader and the policy care about."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.labels: set[str] = set()
        self.inputs: list[dict[str, str | None]] = []
        self.headings: list[int] = []
        self.inline: list[str] = []
        self.landmarks: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "label":
            self.labels.add(str(found.get("for")))
        if tag in {"input", "select", "textarea"} and found.get("type") != "hidden":
            self.inputs.append(found)
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if "style" in found or any(name.startswith("on") for name in found):
            self.inline.append(f"{tag} {attrs}")
        if tag == "script" and "src" not in found and found.get("type") != "application/json":
            self.inline.append(f"script {attrs}")
        if tag in {"main", "nav", "header"}:
            self.landmarks.add(tag)


@pytest.fixture
def full(service: Service) -> Service:
    filled.add_host(service.db)
    filled.fill_night(service.db)
    service.call("POST", "/api/v1/windows", WINDOW)
    return service


def test_pages_are_well_built(full: Service) -> None:
    for path in PAGES:
        answer = full.client.get(path, headers=HTML)
        assert answer.status_code == 200, path
        outline = Outline()
        outline.feed(answer.text)
        assert outline.inline == [], (path, "the policy forbids inline style and script")
        assert len(outline.ids) == len(set(outline.ids)), path
        assert outline.headings.count(1) == 1 and outline.headings[0] == 1, path
        assert all(b - a <= 1 for a, b in zip(outline.headings, outline.headings[1:], strict=False)), path
        assert outline.landmarks == {"main", "nav", "header"}, path
        for field in outline.inputs:
            assert field.get("id") in outline.labels or field.get("aria-label"), (path, field)
        assert "None" not in re.sub(r"<[^>]+>", " ", answer.text).replace("None yet", "").split(), path


def test_empty_pages_say_what_to_do(service: Service) -> None:
    assert "Create the first study" in service.client.get("/", headers=HTML).text
    assert "ratchet host add" in service.client.get("/hosts", headers=HTML).text
    assert "No windows" in service.client.get("/windows", headers=HTML).text


def test_names_from_outside_are_only_text(service: Service) -> None:
    filled.add_host(service.db)
    evil = "<script>alert(1)</script>"
    study = filled.add_study(service.db, "x", state="failed", state_reason=evil)
    filled.add_trial(service.db, study, filled.take_lease(service.db), params={"a": evil}, warnings=[evil])
    for path in ("/", "/studies/x", "/studies/x/trials/0", "/api/v1/studies/x/report", "/studies/new?from=x"):
        assert evil not in service.client.get(path, headers=HTML).text, path


def test_browsers_get_pages_for_errors_and_programs_get_problems(service: Service) -> None:
    page = service.client.get("/studies/nope", headers=HTML)
    assert page.status_code == 404 and page.headers["content-type"].startswith("text/html") and "nope" in page.text
    assert service.client.get("/studies/nope").headers["content-type"] == "application/problem+json"
    assert service.client.get("/nothing", headers=HTML).status_code == 404
    assert service.client.get("/studies/x/trials/99999999999", headers=HTML).status_code == 404


def sign_in(service: Service, scope: str) -> str:
    answer = service.client.post(
        "/login", data={"key": service.tokens[scope], "next": "/hosts"}, follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/hosts")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    page = service.client.get("/", headers=HTML).text
    found = re.search(r'<meta name="csrf" content="([0-9a-f]+)">', page)
    assert found is not None
    return found[1]


def test_signing_in_steering_and_signing_out(full: Service) -> None:
    full.make_keys()
    turned = full.client.get("/studies/kimi-eagle3?x=1", headers=HTML, follow_redirects=False)
    assert turned.headers["location"] == "/login?next=/studies/kimi-eagle3%3Fx%3D1"
    assert "Sign in" in full.client.get("/login").text
    token = sign_in(full, "operator")
    assert full.call("POST", "/api/v1/studies", spec("by-page")).status_code == 403
    assert full.call("POST", "/api/v1/studies", spec("by-page"), X_CSRF_Token="0" * 64).status_code == 403
    assert full.call("POST", "/api/v1/studies", spec("by-page"), X_CSRF_Token=token).status_code == 201
    assert full.client.get("/keys", headers=HTML).status_code == 403
    assert full.client.post("/logout", data={"csrf": "0"}).status_code == 403
    full.client.post("/logout", data={"csrf": token})
    assert full.client.get("/", headers=HTML, follow_redirects=False).status_code == 303


def test_a_viewer_sees_no_buttons(full: Service) -> None:
    full.make_keys()
    sign_in(full, "viewer")
    for path in ("/", "/studies/kimi-eagle3", "/hosts", "/windows"):
        text = full.client.get(path, headers=HTML).text
        assert "data-steer" not in text and "data-post" not in text, path
    assert full.client.get("/studies/new", headers=HTML).status_code == 403


def test_revoking_a_key_ends_its_sessions(full: Service) -> None:
    full.make_keys()
    sign_in(full, "operator")
    full.call("DELETE", "/api/v1/keys/operator", key="admin")
    assert full.client.get("/", headers=HTML, follow_redirects=False).status_code == 303


def test_a_wrong_key_is_refused_and_guessing_slowed_down(full: Service) -> None:
    full.make_keys()
    answers = [full.client.post("/login", data={"key": f"rk_x_{i}"}).status_code for i in range(12)]
    assert answers[0] == 401 and answers[-1] == 429
    assert COOKIE not in full.client.cookies


def test_the_dashboard_looks_and_cannot_write(full: Service) -> None:
    assert "No study has been started" in full.client.get("/dashboard").text
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(storage=full.db.optuna_url, study_name="kimi-eagle3", direction="maximize")
    for value, broken in ((1.0, -1.0), (9.0, 2.0), (3.0, 0.0)):
        study.add_trial(
            optuna.trial.create_trial(
                value=value,
                params={"x": value},
                distributions={"x": optuna.distributions.FloatDistribution(0, 10)},
                system_attrs={"constraints:memory": broken},
            )
        )
    page = full.client.get("/dashboard")
    assert page.status_code == 200 and "Optuna Dashboard" in page.text
    assert full.client.get("/static/bundle.js").status_code == 200
    detail = full.client.get("/api/studies/1").json()
    assert [t["constraints"] for t in detail["trials"]] == [[-1.0], [2.0], [0.0]]
    assert detail["best_trials"][0]["values"] == [3.0], "the best feasible one, not the best of all"
    for method, path in [("DELETE", "/api/studies/1"), ("POST", "/api/studies"), ("PUT", "/api/studies/1/note"),
                         ("POST", "/api/studies/1/rename"), ("POST", "/api/trials/1/tell")]:  # fmt: skip
        refused = full.client.request(method, path, json={})
        assert refused.status_code == 405 and refused.headers["allow"] == "GET, HEAD", path
    assert len(optuna.load_study(study_name="kimi-eagle3", storage=full.db.optuna_url).trials) == 3
    exported = full.client.get("/api/v1/studies/kimi-eagle3/export?format=optuna")
    assert exported.status_code == 404, "the Optuna study of a study carries the study's id"
    full.make_keys()
    assert full.client.get("/api/studies").status_code == 401
    assert full.client.get("/dashboard", follow_redirects=False).status_code == 303
    assert full.call("GET", "/api/studies", key="viewer").status_code == 200


def test_an_optuna_file_opens_by_itself(full: Service, tmp_path: object) -> None:
    from pathlib import Path

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    name = "kimi-eagle3-id-kimi-eagle3"
    study = optuna.create_study(storage=full.db.optuna_url, study_name=name, direction="maximize")
    study.add_trial(optuna.trial.create_trial(value=4.0))
    answer = full.client.get("/api/v1/studies/kimi-eagle3/export?format=optuna")
    path = Path(str(tmp_path)) / "copy.db"
    path.write_bytes(answer.content)
    assert optuna.load_study(study_name=name, storage=f"sqlite:///{path}").best_value == 4.0


def test_an_address_that_can_be_no_page_is_told_on_a_page(full: Service) -> None:
    answer = full.client.get("/studies/kimi-eagle3/trials/first", headers=HTML)
    assert answer.status_code == 404 and "There is no such page" in answer.text
    assert full.client.get("/studies/kimi-eagle3/trials/first").headers["content-type"] == "application/problem+json"


def test_an_old_study_still_tells_what_happened(full: Service) -> None:
    other = filled.add_study(full.db, "busy")
    with full.db.write() as conn:
        for i in range(1600):
            events.append(conn, other.id, "note", {"text": str(i)}, filled.START)
    page = full.client.get("/studies/kimi-eagle3", headers=HTML).text
    assert "tok/s" in page.split('class="feed"')[1].split("</ul>")[0]


def test_a_page_that_shows_a_part_of_the_requests_says_so(full: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "5 requests</summary>" in full.client.get("/studies/kimi-eagle3/trials/0", headers=HTML).text
    monkeypatch.setattr(trial, "SHOWN_SAMPLES", 3)
    assert "The first 3 of 5 requests" in full.client.get("/studies/kimi-eagle3/trials/0", headers=HTML).text
