"""Send thousands of generated requests at the interface: `python -m benchmarks.api.fuzz [--cases N] [--seed S]`.

Schemathesis draws requests from /openapi.json, valid and broken ones, for every operation. An answer is wrong when it
is a 5xx, or has a status, content type or body that is not described. Event streams are left out: they have no end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api import auth
from api.app import create_app
from optimizer.settings import Settings
from storage import keys
from storage.engine import Database
from tests.integration.api import filled

LEFT_OUT = ("/events", "/check", "/restore")
"""Streams without end, and what would open SSH connections to made-up hosts."""
KEPT = ("/api/v1/studies/check",)


@dataclass
class Result:
    """What came of a run."""

    cases: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    operations: int = 0
    seconds: float = 0.0


def fill(db: Database) -> None:
    """Put something into the database that generated names may hit."""
    filled.add_host(db)
    filled.fill_night(db, "0", explored=4)


def run(app: Any, token: str | None, *, cases: int, seed: int = 0) -> Result:
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
        _hammer(operation, result, token, cases, seed)
    result.seconds = time.monotonic() - began
    return result


def _hammer(operation: Any, result: Result, token: str | None, cases: int, number: int) -> None:
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def one(case: Any) -> None:
        # Generated credentials would only test the lock, and lock this address out; the tests do that on purpose.
        for name in [n for n in (case.headers or {}) if n.lower() in {"authorization", "cookie"}]:
            del case.headers[name]
        response = case.call(headers=_headers(token))
        result.cases += 1
        result.statuses[response.status_code] += 1
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
            result = run(app, token, cases=options.cases, seed=options.seed)
            mode = "with a key" if with_key else "open to this machine"
            counts = ", ".join(f"{status}: {count}" for status, count in sorted(result.statuses.items()))
            print(
                f"{mode}: {result.cases} cases over {result.operations} operations in {result.seconds:.0f} s ({counts})"
            )
            for failure in result.failures:
                print(f"  WRONG {failure}")
            wrong += len(result.failures)
            db.close()
    print(f"wrong answers: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
