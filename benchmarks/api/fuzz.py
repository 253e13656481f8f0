"""Send thousands of generated requests at the interface: `python -m benchmarks.api.fuzz [--cases N] [--seed S]`.

Schemathesis draws requests from /openapi.json, valid and broken ones, for every operation; most of them are pointed at
studies, trials, hosts, windows and keys that exist, and most documents are an example with one thing changed. An answer
is wrong when it is a 5xx, or has a status, content type or body that is not described. Event streams are left out: they
have no end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from requests.exceptions import InvalidJSONError
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api import auth
from api.app import create_app
from api.schemas import HOST_EXAMPLE, SPEC_EXAMPLE
from optimizer.settings import Settings
from storage import hosts, keys, studies, windows
from storage.engine import Database
from storage.errors import Missing
from storage.records import WindowRecord, WindowRunRecord
from tests.integration.api import filled

LEFT_OUT = ("/events", "/check", "/restore")
"""Streams without end, and what would open SSH connections to made-up hosts."""
KEPT = ("/api/v1/studies/check",)
STUDY, WINDOW, KEY, NIGHT, SPARE = "0", "nights", "spare", "2026-03-02", "spare"
KNOWN: dict[str, tuple[Any, ...]] = {
    "study_id": (STUDY, STUDY, SPARE),
    "number": (0, 1, 5),
    "name": (filled.HOST, "spare-host"),
    "window_id": (WINDOW,),
    "key_id": (KEY,),
    "local_date": (NIGHT,),
}
"""What the parameters of paths may be to hit something."""
EXAMPLES = {"/api/v1/studies": SPEC_EXAMPLE, "/api/v1/hosts": HOST_EXAMPLE}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@dataclass
class Result:
    """What came of a run."""

    cases: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    reached: int = 0
    """Cases that got past names and input checks: a handler did its work or refused by the state of things."""
    failures: list[str] = field(default_factory=list)
    operations: int = 0
    seconds: float = 0.0


def fill(db: Database) -> None:
    """Put something of everything into the database."""
    filled.add_host(db)
    filled.fill_night(db, STUDY, explored=4)
    restock(db)


def restock(db: Database) -> None:
    """Put back what an earlier case may have deleted."""
    with db.write() as conn:
        if not [k for k in keys.list_keys(conn) if k.name == KEY and k.revoked_at is None]:
            expired = filled.START + timedelta(days=1)
            for old in [k for k in keys.list_keys(conn) if k.name == KEY]:
                keys.delete(conn, old.id)
            keys.put(conn, auth.new_key(KEY, ["viewer"], now=filled.START, expires_at=expired)[0])
        try:
            window = windows.get(conn, WINDOW)
        except Missing:
            window = WindowRecord("w1", WINDOW, "0 22 * * *", "Europe/Berlin", filled.START, until="06:30")
            windows.put(conn, window)
            opened = WindowRunRecord(window.id, NIGHT, filled.START, filled.START + timedelta(hours=8), "ran")
            windows.open_run(conn, opened)
        spare_host = hosts.find(conn, "spare-host")
    if spare_host is None:
        filled.add_host(db, "spare-host")
    with db.read() as conn:
        names = {s.name for s in studies.list_studies(conn, limit=500)}
    if SPARE not in names:
        filled.add_study(db, SPARE)
    if STUDY not in names:
        filled.fill_night(db, STUDY, explored=4)


@st.composite
def changed_example(draw: Any, example: dict[str, Any], unique: list[int]) -> dict[str, Any]:
    """The example under a new name, mostly with one of its fields replaced or removed."""
    unique[0] += 1
    document = {**example, "name": f"{example['name']}-{unique[0]}"}
    name = draw(st.sampled_from(sorted(document)))
    how = draw(st.sampled_from(("as it is", "replaced", "removed")))
    if how == "removed":
        del document[name]
    elif how == "replaced":
        document[name] = draw(JSON)
    return document


def aim(case: Any, draw: Any) -> None:
    """Point a generated request at something that exists."""
    for name in case.path_parameters or {}:
        if name in KNOWN:
            case.path_parameters[name] = draw(st.sampled_from(KNOWN[name]))
    (case.query or {}).pop("after", None)


def run(app: Any, db: Database, token: str | None, *, cases: int, seed: int = 0) -> Result:
    """Send `cases` requests to each operation, with a bearer key or without."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=_headers(token))
    result = Result()
    began = time.monotonic()
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path.endswith(LEFT_OUT) and operation.path not in KEPT:
            continue
        if token is None and (operation.method.upper(), operation.path) == ("POST", "/api/v1/keys"):
            continue  # the first key would close the door behind it
        result.operations += 1
        _hammer(operation, db, result, token, cases, seed)
    result.seconds = time.monotonic() - began
    return result


def _hammer(operation: Any, db: Database, result: Result, token: str | None, cases: int, number: int) -> None:
    restock(db)
    unique = [0]
    example = EXAMPLES.get(operation.path.removesuffix("/check").removesuffix("/check-entry"))
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(), data=st.data(), blind=st.sampled_from((False, False, False, True)))
    def one(case: Any, data: st.DataObject, blind: bool) -> None:
        if not blind:
            aim(case, data.draw)
            if example is not None and operation.method.upper() == "POST":
                case.body, case.media_type = data.draw(changed_example(example, unique)), "application/json"
        if operation.method.upper() == "DELETE":
            restock(db)
        # Generated credentials would only test the lock, and lock this address out; the tests do that on purpose.
        for name in [n for n in (case.headers or {}) if n.lower() in {"authorization", "cookie"}]:
            del case.headers[name]
        try:
            response = case.call(headers=_headers(token))
        except InvalidJSONError:  # an infinity drawn for the body: the client cannot write it
            return
        result.cases += 1
        result.statuses[response.status_code] += 1
        result.reached += response.status_code < 300 or response.status_code in {409, 412}
        try:
            case.validate_response(response, checks=checks, headers=_headers(token))
        except FailureGroup as error:
            text = f"{operation.method.upper()} {operation.path}: {response.status_code}: {str(error)[:600]}"
            if not any(f.startswith(text[:60]) for f in result.failures):
                result.failures.append(text)

    one()


def _headers(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def main() -> int:
    """Run without and with keys, print the counts, and fail when an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=40, help="requests per operation and mode")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong = 0
    for with_key in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            db = filled.new_database(Path(folder))
            fill(db)
            token = None
            if with_key:
                record, token = auth.new_key("fuzz", ["admin"], now=datetime.now(UTC), expires_at=None)
                with db.write() as conn:
                    keys.put(conn, record)
            app = create_app(db, None, Settings(data_dir=Path(folder)))
            result = run(app, db, token, cases=options.cases, seed=options.seed)
            mode = "with a key" if with_key else "open to this machine"
            counts = ", ".join(f"{status}: {count}" for status, count in sorted(result.statuses.items()))
            print(
                f"{mode}: {result.cases} cases over {result.operations} operations in {result.seconds:.0f} s, "
                f"{result.reached} did something ({counts})"
            )
            for failure in result.failures:
                print(f"  WRONG {failure}")
            wrong += len(result.failures)
            db.close()
    print(f"wrong answers: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
