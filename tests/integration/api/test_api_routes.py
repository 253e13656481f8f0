"""The REST interface through its ASGI door: what it does, what it refuses, and how it says so."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from api.app import create_app
from optimizer.settings import Settings
from storage import hosts, series, studies, trials
from storage.engine import Database
from storage.records import SeriesRecord
from tests.integration.api import filled
from tests.integration.api.conftest import Service
from tests.integration.api.specs import HOST, WINDOW, spec

V1 = "/api/v1"
OPEN = {"GET /healthz", "GET /readyz", "GET /login", "POST /login", "POST /logout", "GET /openapi.json"}
"""What answers without a key; everything else must be in SCOPES."""
SCOPES = {
    "viewer": """GET /api/v1/studies; GET /api/v1/studies/{study_id}; POST /api/v1/studies/check;
        GET /api/v1/studies/{study_id}/trials; GET /api/v1/studies/{study_id}/trials/{number};
        GET /api/v1/studies/{study_id}/trials/{number}/log; GET /api/v1/studies/{study_id}/trials/{number}/requests;
        GET /api/v1/studies/{study_id}/trials/{number}/series;
        GET /api/v1/studies/{study_id}/best; GET /api/v1/studies/{study_id}/verdict;
        GET /api/v1/studies/{study_id}/importance; GET /api/v1/studies/{study_id}/report;
        GET /api/v1/studies/{study_id}/export; GET /api/v1/studies/{study_id}/events; GET /api/v1/events;
        GET /api/v1/hosts; GET /api/v1/hosts/{name}; POST /api/v1/hosts/check-entry;
        GET /api/v1/windows; GET /api/v1/windows/{window_id}; GET /api/v1/windows/{window_id}/nights/{local_date};
        GET /api/v1/me; GET /metrics; GET /; GET /studies/{study_id}; GET /studies/{study_id}/trials/{number};
        GET /hosts; GET /windows""",
    "operator": """POST /api/v1/studies; PATCH /api/v1/studies/{study_id}; DELETE /api/v1/studies/{study_id};
        POST /api/v1/studies/{study_id}/start; POST /api/v1/studies/{study_id}/pause;
        POST /api/v1/studies/{study_id}/resume; POST /api/v1/studies/{study_id}/stop;
        POST /api/v1/hosts/{name}/check; POST /api/v1/hosts/{name}/restore; POST /api/v1/windows;
        PATCH /api/v1/windows/{window_id}; DELETE /api/v1/windows/{window_id}; GET /studies/new""",
    "admin": """POST /api/v1/hosts; DELETE /api/v1/hosts/{name}; POST /api/v1/keys; GET /api/v1/keys;
        DELETE /api/v1/keys/{key_id}; GET /keys""",
}


def scope_of(route: Any) -> str | None:
    found = {getattr(d.call, "scope", None) for d in route.dependant.dependencies} - {None}
    assert len(found) <= 1, route.path
    return found.pop().value if found else None


def all_routes(app: Any) -> dict[str, str | None]:
    found: dict[str, str | None] = {}

    def walk(routes: Any) -> None:
        for route in routes:
            if hasattr(route, "dependant"):
                for method in route.methods - {"HEAD"}:
                    found[f"{method} {route.path}"] = scope_of(route)
            elif hasattr(route, "original_router"):
                walk(route.original_router.routes)
            elif hasattr(route, "methods"):
                for method in route.methods - {"HEAD"}:
                    found[f"{method} {route.path}"] = None

    walk(app.routes)
    return found


def test_every_route_has_the_scope_that_is_written_here(service: Service) -> None:
    wanted = {line.strip(): scope for scope, lines in SCOPES.items() for line in lines.split(";")}
    found = all_routes(service.app)
    assert {r: s for r, s in found.items() if r not in OPEN} == wanted
    assert {r for r in found if r in OPEN} == OPEN
    assert all(found[r] is None for r in OPEN)


def test_every_route_is_closed_without_a_key_and_to_smaller_scopes(service: Service) -> None:
    filled.add_host(service.db)
    filled.fill_night(service.db, explored=3)
    service.make_keys()
    ranks = ["viewer", "operator", "admin"]
    for route, scope in all_routes(service.app).items():
        if route in OPEN or scope is None:
            continue
        method, _, path = route.partition(" ")
        path = path.replace("{study_id}", "nope").replace("{number}", "0").replace("{name}", "nope")
        path = path.replace("{window_id}", "nope").replace("{key_id}", "nope").replace("{local_date}", "2026-03-02")
        if path.endswith("/events"):
            continue
        bare = service.client.request(method, path, follow_redirects=False)
        assert bare.status_code in {401, 303}, route
        for smaller in ranks[: ranks.index(scope)]:
            assert service.call(method, path, {}, key=smaller).status_code == 403, (route, smaller)
        assert service.call(method, path, {}, key=scope).status_code not in {401, 403, 500}, route


def test_a_study_from_creation_to_its_end(service: Service) -> None:
    assert service.call("POST", f"{V1}/hosts", HOST).status_code == 201
    made = service.call("POST", f"{V1}/studies", spec())
    assert made.status_code == 201, made.text
    study = made.json()
    assert made.headers["location"] == f"{V1}/studies/{study['id']}"
    assert isinstance(study["id"], str) and study["state"] == "created"
    path = f"{V1}/studies/{study['id']}"
    for verb, state in [("start", "queued"), ("start", "queued"), ("pause", "paused"), ("pause", "paused"),
                        ("resume", "queued"), ("stop", "finished"), ("stop", "finished")]:  # fmt: skip
        answer = service.call("POST", f"{path}/{verb}")
        assert (answer.status_code, answer.json()["state"]) == (202, state), verb
    refused = service.call("POST", f"{path}/start")
    assert refused.status_code == 409 and refused.json()["remedy"]
    assert service.call("GET", f"{V1}/studies/night").json()["id"] == study["id"]
    assert service.worker.woken >= 7
    assert service.call("DELETE", path).status_code == 204
    assert service.call("GET", path).status_code == 404


def test_a_study_that_was_created_cannot_be_paused_or_resumed(service: Service) -> None:
    filled.add_host(service.db)
    filled.add_study(service.db, "fresh")
    assert service.call("POST", f"{V1}/studies/fresh/resume").status_code == 409
    assert service.call("POST", f"{V1}/studies/fresh/pause").status_code == 409


def test_every_mistake_of_a_specification_is_told_and_nothing_is_created(service: Service) -> None:
    bad = spec(engine="sglangg", budget={"trails": 4}, space={"parameters": {"threads": {"int": [8]}}})
    answer = service.call("POST", f"{V1}/studies", bad)
    assert answer.status_code == 422
    problems = {e["path"]: e for e in answer.json()["errors"]}
    assert "engine" in problems and "budget.trails" in problems
    assert "sglang" in problems["engine"]["hint"] and "trials" in problems["budget.trails"]["hint"]
    assert service.call("GET", f"{V1}/studies").json()["items"] == []
    checked = service.call("POST", f"{V1}/studies/check", bad).json()
    assert checked["valid"] is False and {e["path"] for e in checked["errors"]} == set(problems)


def test_a_check_tells_names_that_are_unknown_or_taken(service: Service) -> None:
    unknown = service.call("POST", f"{V1}/studies/check", spec(window="nights")).json()
    assert [e["path"] for e in unknown["errors"]] == ["host", "window"]
    filled.add_host(service.db)
    service.call("POST", f"{V1}/windows", WINDOW)
    assert service.call("POST", f"{V1}/studies/check", spec(window="nights")).json() == {"valid": True, "errors": []}
    service.call("POST", f"{V1}/studies", spec())
    taken = service.call("POST", f"{V1}/studies/check", spec()).json()
    assert taken["valid"] is False and [e["path"] for e in taken["errors"]] == ["name"]


@pytest.mark.parametrize("name", ["", "str", "HostEntry", "x[0]", "a.b", "\x00", "ä" * 300])
def test_fields_of_any_name_are_told_and_crash_nothing(service: Service, name: str) -> None:
    for path in (f"{V1}/studies/check", f"{V1}/hosts/check-entry"):
        answer = service.call("POST", path, {name: {name: 1}})
        assert answer.status_code == 200 and answer.json()["valid"] is False, path


def test_a_specification_may_be_yaml(service: Service) -> None:
    filled.add_host(service.db)
    made = service.client.post(
        f"{V1}/studies?start=true", content=yaml.safe_dump(spec()), headers={"Content-Type": "application/yaml"}
    )
    assert made.status_code == 201 and made.json()["state"] == "queued"


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 422),
        (b"\xff\xfe", "application/json", 422),
        (b'{"a": NaN}', "application/json", 422),
        (b"[" * 100_000, "application/json", 422),
        (b"a: [", "application/yaml", 422),
        (b"a: &x 1\nb: *x", "application/yaml", 422),
        (b"a: !!python/object/apply:os.system [id]", "application/yaml", 422),
        (b"[]", "application/json", 422),
        (b"5", "application/json", 422),
        (b"a=1", "text/plain", 415),
    ],
)
def test_bodies_that_are_no_documents(service: Service, body: bytes, kind: str, status: int) -> None:
    answer = service.client.post(f"{V1}/studies", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_operator_brings_no_host_of_its_own(service: Service) -> None:
    service.make_keys()
    answer = service.call("POST", f"{V1}/studies", spec(host={"name": "own", "connection": "local"}), key="operator")
    assert answer.status_code == 403 and "admin" in answer.json()["detail"]
    several = spec(hosts=[{"name": "own", "connection": "local"}]) | {"host": {"name": "own", "connection": "local"}}
    assert service.call("POST", f"{V1}/studies", several, key="operator").status_code == 403
    with service.db.read() as conn:
        assert hosts.list_hosts(conn) == []
    assert service.call("POST", f"{V1}/hosts", HOST, key="admin").status_code == 201
    assert service.call("POST", f"{V1}/studies", spec(), key="operator").status_code == 201


def test_unknown_names_are_problems_with_a_way_out(service: Service) -> None:
    filled.add_host(service.db)
    assert service.call("POST", f"{V1}/studies", spec(host="nope")).status_code == 404
    assert service.call("POST", f"{V1}/studies", spec(window="nope")).status_code == 404
    assert service.call("POST", f"{V1}/studies", spec()).status_code == 201
    again = service.call("POST", f"{V1}/studies", spec())
    assert again.status_code == 409 and again.json()["remedy"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", f"{V1}/nothing", 404),
        ("PUT", f"{V1}/studies", 405),
        ("GET", f"{V1}/studies/nope/trials", 404),
        ("GET", f"{V1}/studies/full/trials/99", 404),
        ("GET", f"{V1}/studies/full/trials/99/log", 404),
        ("GET", f"{V1}/studies/full/trials/x", 422),
        ("GET", f"{V1}/studies/full/trials?limit=0", 422),
        ("GET", f"{V1}/studies/full/trials?after=zzz", 422),
        ("GET", f"{V1}/studies/full/trials?state=nope", 422),
        ("GET", f"{V1}/studies/full/report?format=pdf", 422),
        ("GET", f"{V1}/studies?state=nope", 422),
        ("GET", f"{V1}/windows/nope", 404),
        ("GET", f"{V1}/windows/nope/nights/2026-01-01", 404),
        ("DELETE", f"{V1}/keys/nope", 404),
        ("DELETE", f"{V1}/hosts/nope", 404),
        ("POST", f"{V1}/hosts/nope/check", 404),
        ("POST", f"{V1}/hosts/nope/restore", 404),
        ("GET", f"{V1}/studies/full/export?format=optuna", 404),
    ],
)
def test_every_refusal_is_a_problem_document(service: Service, method: str, path: str, status: int) -> None:
    filled.add_host(service.db)
    filled.add_study(service.db, "full")
    answer = service.call(method, path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert {"type", "title", "status", "detail", "errors"} <= body.keys() and body["status"] == status


def test_a_crash_is_a_problem_that_names_an_incident_and_nothing_else(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("the secret reason")

    monkeypatch.setattr(studies, "list_studies", broken)
    answer = service.call("GET", f"{V1}/studies")
    assert answer.status_code == 500 and answer.headers["content-type"] == "application/problem+json"
    assert "incident" in answer.json()["detail"] and "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_large_body_is_refused_by_its_header_and_while_reading(service: Service) -> None:
    filled.add_host(service.db)
    big = b'{"a": "' + b"x" * (1 << 20) + b'"}'
    assert service.client.post(f"{V1}/studies", content=big).status_code == 413
    chunks = (big[i : i + 65536] for i in range(0, len(big), 65536))
    assert service.client.post(f"{V1}/studies", content=chunks).status_code == 413
    lie = {"Content-Length": "-5", "Content-Type": "application/json"}
    assert service.client.post(f"{V1}/studies", content=b"{}", headers=lie).status_code in {400, 413}


def test_headers_of_every_answer(service: Service) -> None:
    for path in ("/healthz", "/nothing", f"{V1}/studies", "/login", "/"):
        answer = service.client.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
    assert service.client.get(f"{V1}/studies").headers["cache-control"] == "no-store"


def test_what_other_sites_make_a_browser_send_is_refused(service: Service) -> None:
    filled.add_host(service.db)
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
        assert service.client.post(f"{V1}/studies", json=spec(), headers=headers).status_code == 403
    own = {"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}
    assert service.client.post(f"{V1}/studies", json=spec(), headers=own).status_code == 201


def test_a_loopback_service_answers_to_its_own_names_only(db: Database, tmp_path: Path) -> None:
    app = create_app(db, None, Settings(data_dir=tmp_path), allowed_hosts={"127.0.0.1", "localhost"})
    with TestClient(app) as client:
        assert client.get("/healthz", headers={"Host": "127.0.0.1:8090"}).status_code == 200
        assert client.get("/healthz", headers={"Host": "rebound.example"}).status_code == 403


def test_without_a_key_only_this_machine_comes_in_and_with_one_nobody(service: Service) -> None:
    assert service.call("GET", f"{V1}/me").json()["via"] == "anonymous"
    assert service.call("GET", f"{V1}/me", X_Forwarded_For="10.0.0.1").status_code == 401
    made = service.call("POST", f"{V1}/keys", {"name": "first", "scopes": ["admin"]})
    assert made.status_code == 201
    assert service.call("GET", f"{V1}/me").status_code == 401
    service.tokens["first"] = made.json()["key"]
    me = service.call("GET", f"{V1}/me", key="first").json()
    assert me == {"name": "first", "scopes": ["admin"], "via": "key"}


def test_a_service_for_others_lets_nobody_in_without_a_key(db: Database, tmp_path: Path) -> None:
    with TestClient(create_app(db, None, Settings(data_dir=tmp_path), open_to_local=False)) as client:
        assert client.get(f"{V1}/me").status_code == 401
        assert client.get("/healthz").status_code == 200


def test_keys_are_listed_used_revoked_and_never_shown_again(service: Service) -> None:
    service.make_keys()
    listed = service.call("GET", f"{V1}/keys", key="admin")
    assert all(token not in listed.text for token in service.tokens.values()) and "hash" not in listed.text
    viewer = next(k for k in listed.json()["items"] if k["name"] == "viewer")
    assert viewer["last_used_at"] is None
    assert service.call("GET", f"{V1}/me", key="viewer").status_code == 200
    used = {k["name"]: k["last_used_at"] for k in service.call("GET", f"{V1}/keys", key="admin").json()["items"]}
    assert used["viewer"] is not None
    assert service.call("DELETE", f"{V1}/keys/viewer", key="admin").json()["usable"] is False
    assert service.call("GET", f"{V1}/me", key="viewer").status_code == 401


def test_guessing_keys_is_slowed_down(service: Service) -> None:
    service.make_keys()
    answers = [
        service.client.get(f"{V1}/me", headers={"Authorization": f"Bearer rk_aaaa_{i}"}).status_code for i in range(12)
    ]
    assert answers[:10] == [401] * 10 and answers[-1] == 429
    blocked = service.call("GET", f"{V1}/me", key="viewer")
    assert blocked.status_code == 429 and int(blocked.headers["retry-after"]) > 0


@pytest.mark.parametrize("header", ["Basic abc", "Bearer", "Bearer ", "Bearer rk__x", "bearer rk_zz_", "Bearer é"])
def test_other_credentials_are_no_credentials(service: Service, header: str) -> None:
    service.make_keys()
    answer = service.client.get(f"{V1}/me", headers={"Authorization": header.encode()})
    assert answer.status_code == 401 and answer.headers["www-authenticate"].startswith("Bearer")


def test_a_repeated_post_is_done_once(service: Service) -> None:
    filled.add_host(service.db)
    first = service.call("POST", f"{V1}/studies", spec(), Idempotency_Key="k1")
    again = service.call("POST", f"{V1}/studies", spec(), Idempotency_Key="k1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json() and again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    other = service.call("POST", f"{V1}/studies", spec("other"), Idempotency_Key="k1")
    assert other.status_code == 422
    assert len(service.call("GET", f"{V1}/studies").json()["items"]) == 1


def test_a_refused_post_may_use_its_key_again(service: Service) -> None:
    filled.add_host(service.db)
    assert service.call("POST", f"{V1}/studies", spec(engine="x"), Idempotency_Key="k").status_code == 422
    assert service.call("POST", f"{V1}/studies", spec(), Idempotency_Key="k").status_code == 201


def test_idempotency_keys_belong_to_their_caller(service: Service) -> None:
    service.make_keys()
    assert service.call("POST", f"{V1}/hosts", HOST, key="admin", Idempotency_Key="k").status_code == 201
    assert service.call("POST", f"{V1}/windows", WINDOW, key="operator", Idempotency_Key="k").status_code == 201
    assert service.call("POST", f"{V1}/hosts", HOST, key="viewer", Idempotency_Key="k").status_code == 403
    assert service.client.post(f"{V1}/hosts", json=HOST, headers={"Idempotency-Key": "k"}).status_code == 401


def test_edits_of_another_version_are_refused(service: Service) -> None:
    service.call("POST", f"{V1}/hosts", HOST)
    made = service.call("POST", f"{V1}/studies", spec())
    path = f"{V1}/studies/{made.json()['id']}"
    stale = made.headers["etag"]
    changed = service.call("PATCH", path, {"priority": 5}, If_Match=stale)
    assert changed.status_code == 200 and changed.json()["priority"] == 5 and changed.headers["etag"] != stale
    assert service.call("PATCH", path, {"priority": 6}, If_Match=stale).status_code == 412
    assert service.call("DELETE", path, If_Match=stale).status_code == 412
    assert service.call("DELETE", path, If_Match=changed.headers["etag"]).status_code == 204


def test_of_several_who_edit_the_same_version_one_wins(service: Service) -> None:
    filled.add_host(service.db)
    filled.add_study(service.db, "one")
    path = f"{V1}/studies/one"
    tag = service.call("GET", path).headers["etag"]
    with ThreadPoolExecutor(6) as pool:
        answers = pool.map(
            lambda i: service.call("PATCH", path, {"priority": i}, If_Match=tag).status_code, range(1, 7)
        )
        assert sorted(answers) == [200, *[412] * 5]


def test_listings_are_walked_by_cursor_without_loss(service: Service) -> None:
    filled.add_host(service.db)
    study = filled.fill_night(service.db, explored=20)
    for i in range(7):
        filled.add_study(service.db, f"s{i}")
    for path, name in ((f"{V1}/studies", "id"), (f"{V1}/studies/{study.id}/trials", "number")):
        whole = [item[name] for item in service.call("GET", f"{path}?limit=500").json()["items"]]
        walked: list[Any] = []
        after = ""
        while True:
            page = service.call("GET", f"{path}?limit=3{after}").json()
            walked += [item[name] for item in page["items"]]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        assert walked == whole and len(whole) >= 8


def test_trials_carry_what_is_promised(service: Service) -> None:
    filled.add_host(service.db)
    study = filled.fill_night(service.db)
    items = service.call("GET", f"{V1}/studies/{study.name}/trials?limit=500").json()["items"]
    for wanted in ("state", "phase", "params", "effective", "launch_command", "output_tok_s", "accept_len", "failure"):
        assert all(wanted in t for t in items)
    assert all("timings" in t for t in items)
    failed = [t for t in items if t["state"] == "infeasible"]
    assert failed and failed[0]["failure"]["label"] == "oom_kv_cache" and failed[0]["failure"]["remedy"]
    only = service.call("GET", f"{V1}/studies/{study.name}/trials?state=infeasible&state=pruned&limit=500").json()
    assert {t["state"] for t in only["items"]} <= {"infeasible", "pruned"} and only["items"]
    one = service.call("GET", f"{V1}/studies/{study.name}/trials/0").json()
    assert one["measurements"][0]["tok_s"].keys() == set(filled.PROMPTS)
    log = service.client.get(f"{V1}/studies/{study.name}/trials/0/log")
    assert "ready to roll" in log.text and log.headers["content-type"].startswith("text/plain")
    assert service.client.get(f"{V1}/studies/{study.name}/trials/0/log?tail=6").text == "roll!\n"
    requests = service.call("GET", f"{V1}/studies/{study.name}/trials/0/requests?limit=2").json()
    assert len(requests["items"]) == 2 and requests["next"]


def test_what_was_sampled_beside_a_trial_is_read_by_source_and_in_pages(service: Service) -> None:
    filled.add_host(service.db)
    study = filled.fill_night(service.db, explored=3)
    path = f"{V1}/studies/{study.name}/trials/0/series"
    found = service.call("GET", path).json()
    assert [(s["source"], s["name"]) for s in found["items"]] == [
        ("engine", "decode_tok_s"), ("gpu0", "power_w"), ("gpu1", "power_w"),
    ]  # fmt: skip
    assert found["next"] is None and found["items"][0]["started_at"] == "2026-03-02T21:00:00Z"
    assert all(len(s["times_s"]) == len(s["values"]) == 30 for s in found["items"])
    assert [s["source"] for s in service.call("GET", f"{path}?source=gpu1").json()["items"]] == ["gpu1"]
    first = service.call("GET", f"{path}?limit=2").json()
    rest = service.call("GET", f"{path}?limit=2&after={first['next']}").json()
    assert [*first["items"], *rest["items"]] == found["items"] and rest["next"] is None
    assert service.call("GET", f"{path}?after=x").status_code == 422
    assert service.call("GET", f"{V1}/studies/{study.name}/trials/999/series").status_code == 404


def test_keys_of_a_server_are_shown_nowhere(service: Service) -> None:
    filled.add_host(service.db)
    argv = ["python3", "serve.py", "--api-key", "sk-live", "--admin-api-key=sk-admin", "--port", "8000"]
    study = filled.fill_night(service.db, explored=3)
    fence = filled.take_lease(service.db)
    with service.db.write() as conn:
        hosts.update(conn, filled.HOST, home={"argv": argv, "env": {}})
        studies.update(conn, study.id, home={"argv": argv, "env": {"HF_TOKEN": "hf_secret"}})
        told = {"api-key": "sk-live", "tp-size": 8}
        trials.update(conn, study.id, 0, host=study.host, fence=fence, running_config=told, effective=told)
    paths = ["hosts", f"hosts/{filled.HOST}", f"studies/{study.id}", f"studies/{study.id}/trials/0"]
    paths += [
        f"studies/{study.id}/{name}" for name in ("trials", "report", "export", "report?format=md", "export?format=csv")
    ]
    for path in [*(f"{V1}/{p}" for p in paths), "/hosts", f"/studies/{study.id}", f"/studies/{study.id}/trials/0"]:
        answer = service.call("GET", path)
        assert answer.status_code == 200 and "sk-" not in answer.text and "hf_secret" not in answer.text, path


def test_samples_that_no_json_can_carry_are_null(service: Service) -> None:
    filled.add_host(service.db)
    study = filled.fill_night(service.db, explored=3)
    bad = SeriesRecord(study.id, 0, "engine", "x", filled.START, [0.0, 1.0], [float("nan"), 2.0])
    fence = filled.take_lease(service.db)
    with service.db.write() as conn:
        series.put(conn, [bad], host=study.host, fence=fence)
    found = service.call("GET", f"{V1}/studies/{study.name}/trials/0/series?source=engine").json()["items"]
    assert [s["values"] for s in found if s["name"] == "x"] == [[None, 2.0]]


def test_best_verdict_importance_report_and_exports(service: Service) -> None:
    filled.add_host(service.db)
    study = filled.fill_night(service.db)
    path = f"{V1}/studies/{study.id}"
    best = service.call("GET", f"{path}/best").json()
    assert best["proven"] is True and best["trial"]["number"] == study.best_trial
    assert best["launch_command"].startswith("NCCL_P2P_LEVEL=SYS") and best["ratio"] > 1.1
    assert {c["name"] for c in best["changes"]} >= {"--speculative-num-steps"}
    verdict = service.call("GET", f"{path}/verdict").json()
    assert verdict["outcome"] == "win" and verdict["sentence"].startswith("Proven faster") and verdict["looks"]
    assert service.call("GET", f"{path}/importance").json()["importance"]
    html = service.client.get(f"{path}/report")
    assert html.headers["content-type"].startswith("text/html") and "<svg" in html.text
    assert "http://" not in html.text.replace("http://www.w3.org", "") and "<script" not in html.text
    assert "sandbox" in html.headers["content-security-policy"]
    assert "| `--speculative-num-steps` |" in service.client.get(f"{path}/report?format=md").text
    document = json.loads(service.client.get(f"{path}/report?format=json").text)
    assert document["schema_version"] == 1 and len(document["trials"]) == document["summary"]["starts"]
    csv = service.client.get(f"{path}/export?format=csv")
    assert (
        csv.text.splitlines()[0].startswith("number,kind,state") and "attachment" in csv.headers["content-disposition"]
    )
    assert len(csv.text.splitlines()) == len(document["trials"]) + 1


def test_secrets_of_the_original_server_are_never_shown(service: Service) -> None:
    filled.add_host(service.db)
    study = filled.fill_night(service.db, explored=2)
    one = f"{V1}/studies/{study.id}"
    for path in (
        *(f"{V1}/hosts", f"{V1}/hosts/{filled.HOST}", one, "/hosts", f"/studies/{study.id}"),
        *(f"{one}/report?format=json", f"{one}/export?format=json"),
    ):
        text = service.client.get(path).text
        assert "hf_secret" not in text, path
    assert service.call("GET", f"{V1}/hosts/{filled.HOST}").json()["home"]["env_names"] == ["HF_TOKEN"]


def test_hosts_are_kept_while_they_are_used(service: Service) -> None:
    assert service.call("POST", f"{V1}/hosts", HOST).status_code == 201
    assert service.call("POST", f"{V1}/hosts", HOST).status_code == 409
    assert service.call("POST", f"{V1}/hosts?replace=true", HOST | {"takeover": False}).status_code == 201
    service.call("POST", f"{V1}/studies?start=true", spec())
    assert service.call("DELETE", f"{V1}/hosts/gpu-box").status_code == 409
    assert service.call("POST", f"{V1}/hosts?replace=true", HOST).status_code == 409
    service.call("POST", f"{V1}/studies/night/stop")
    assert service.call("DELETE", f"{V1}/hosts/gpu-box").status_code == 204
    bad = service.call("POST", f"{V1}/hosts", {"name": "x", "conection": "ssh"})
    assert bad.status_code == 422 and any("connection" in str(e["hint"]) for e in bad.json()["errors"])


def test_windows_show_five_openings_and_hold_their_studies(service: Service) -> None:
    filled.add_host(service.db)
    made = service.call("POST", f"{V1}/windows", WINDOW)
    assert made.status_code == 201 and len(made.json()["next_openings"]) == 5
    assert "CE" in made.json()["next_openings"][0]["opens_local"]
    study = service.call("POST", f"{V1}/studies", spec(window="nights")).json()
    assert study["window_id"] == made.json()["id"]
    assert service.call("GET", f"{V1}/windows").json()["items"][0]["studies"] == ["night"]
    assert service.call("DELETE", f"{V1}/windows/nights").status_code == 409
    off = service.call("PATCH", f"{V1}/windows/nights", {"enabled": False}, If_Match=made.headers["etag"])
    assert off.json()["enabled"] is False and off.json()["open_now"] is False
    freed = service.call("PATCH", f"{V1}/studies/night", {"window": ""}).json()
    assert freed["window_id"] is None and freed["spec"]["window"] is None
    assert service.call("DELETE", f"{V1}/windows/nights").status_code == 204
    twice = service.call("POST", f"{V1}/windows", {**WINDOW, "start_cron": "0 */2 * * *", "timezone": "Mars/Base"})
    assert [e["path"] for e in twice.json()["errors"]] == ["start_cron", "timezone"]


def test_the_figures_for_prometheus(service: Service) -> None:
    filled.add_host(service.db)
    filled.fill_night(service.db)
    filled.add_study(service.db, "queued-one", state="queued")
    for _ in range(2):
        text = service.client.get("/metrics").text
        assert 'ratchet_studies{state="finished"} 1.0' in text and 'ratchet_studies{state="queued"} 1.0' in text
        assert 'ratchet_starts_wasted{cause="oom_kv_cache"} 2.0' in text
        assert 'ratchet_phase_seconds{phase="load"}' in text and 'phase="stage' not in text
        assert 'ratchet_study_best_ratio{outcome="win",study="kimi-eagle3"} 1.2' in text
        assert 'ratchet_lease_left_seconds{host="gpu-box"}' in text


def test_readiness_tells_a_shutdown(service: Service) -> None:
    assert service.client.get("/readyz").json()["checks"]["database"] == "ok"
    service.app.state.services.stopping.set()
    assert service.client.get("/readyz").status_code == 503
    assert service.client.get("/healthz").status_code == 200


def test_readiness_tells_a_worker_that_has_ended(service: Service) -> None:
    assert service.client.get("/readyz").json()["checks"]["worker"] == "ok"
    service.worker.living = False
    answer = service.client.get("/readyz")
    assert answer.status_code == 503 and "worker" in answer.json()["detail"]


def test_a_cookie_that_ended_keeps_nobody_out_of_a_service_without_keys(service: Service) -> None:
    service.client.cookies.set("ratchet_session", "of-another-port.signature")
    assert service.client.get(f"{V1}/me").json()["via"] == "anonymous"
    service.make_keys()
    assert service.client.get(f"{V1}/me").status_code == 401


def test_a_stranger_who_guesses_behind_a_proxy_locks_out_nobody_else(service: Service) -> None:
    service.make_keys()
    for i in range(12):
        guess = {"Authorization": f"Bearer rk_aaaa_{i}", "X-Forwarded-For": f"10.0.0.{i}, 203.0.113.9"}
        last = service.client.get(f"{V1}/me", headers=guess)
    assert last.status_code == 429
    assert service.call("GET", f"{V1}/me", key="viewer", X_Forwarded_For="203.0.113.77").status_code == 200


def test_the_examples_of_the_description_work(service: Service) -> None:
    document = service.client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    sent = 0
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("summary") or operation.get("description"), path
            for example in examples_of(document, operation):
                sent += 1
                answer = service.call(method.upper(), path, example)
                assert answer.status_code < 300, (path, answer.text)
    assert sent >= 5


def examples_of(document: Any, operation: Any) -> list[Any]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "examples" in content:
        return [e["value"] for e in content["examples"].values()]
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    found: list[Any] = document["components"]["schemas"].get(name, {}).get("examples", [])
    return found
