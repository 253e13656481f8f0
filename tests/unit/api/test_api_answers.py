"""The client's types: written from the interface's models, and each method's answer is that of the route it asks."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx

from api import answers
from api.app import create_app
from api.client import Ratchet
from optimizer.settings import Settings
from storage.engine import open_database
from tests.unit.api.answers import TARGET, source

ARGUMENTS: dict[str, Any] = {"number": 0, "spec": {}, "entry": {}, "window": {}, "scopes": ["viewer"]}
NAMED_WINDOW = {"window", "switch_window", "remove_window", "night"}
UNTYPED = {"close", "events", "delete_study", "remove_host", "remove_window", "trial_log", "report", "export", "night"}


def test_the_types_are_those_of_the_interface() -> None:
    assert TARGET.read_text(encoding="utf-8") == source(), "run: python -m tests.unit.api.answers"


def models_by_route(folder: Path) -> list[tuple[Any, str]]:
    db = open_database(f"sqlite:///{folder / 'none.db'}")
    app = create_app(db, settings=Settings(data_dir=folder))
    found = []

    def walk(routes: Any) -> None:
        for route in routes:
            if hasattr(route, "original_router"):
                walk(route.original_router.routes)
            elif getattr(route, "response_model", None) is not None:
                model = route.response_model
                inner = model.__pydantic_generic_metadata__["args"]
                found.append((route, (inner[0] if inner else model).__name__))

    walk(app.routes)
    db.close()
    return found


def test_every_method_has_the_type_of_the_route_that_it_asks(tmp_path: Path) -> None:
    routes = models_by_route(tmp_path)
    methods = [n for n, f in inspect.getmembers(Ratchet, inspect.isfunction) if not n.startswith("_")]
    for name in sorted(set(methods) - UNTYPED):
        asked: list[httpx.Request] = []

        def answer(request: httpx.Request, asked: list[httpx.Request] = asked) -> httpx.Response:
            asked.append(request)
            return httpx.Response(200, json={"items": [], "next": None})

        method = getattr(Ratchet, name)
        needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty and p.name != "self"]
        given = {p.name: "x" if name in NAMED_WINDOW else ARGUMENTS.get(p.name, "x") for p in needed}
        with Ratchet("http://service", transport=httpx.MockTransport(answer)) as ratchet:
            found = method(ratchet, **given)
            list(found) if not isinstance(found, dict) else None
        returned = get_type_hints(method)["return"]
        kind = get_args(returned)[0] if get_args(returned) else returned
        request = asked[0]
        known = [m for r, m in routes if request.method in r.methods and r.path_regex.match(request.url.path)]
        assert known, (name, request.url.path)
        assert kind is getattr(answers, known[0]), name


def test_answers_name_their_fields() -> None:
    assert typing.is_typeddict(answers.TrialDetail)
    assert {"params", "accept_len", "measurements"} <= set(get_type_hints(answers.TrialDetail))
