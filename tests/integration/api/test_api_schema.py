"""Generated requests against the described interface: never a 500, never an answer that is not described.

A bounded part of `benchmarks/api/fuzz.py`, which runs thousands of cases.
"""

from __future__ import annotations

import pytest

from benchmarks.api import fuzz
from tests.integration.api.conftest import Service

CASES_PER_OPERATION = 2


@pytest.mark.parametrize("with_key", [False, True], ids=["open to this machine", "with keys"])
def test_generated_requests_are_answered_as_described(service: Service, with_key: bool) -> None:
    fuzz.fill(service.db)
    token = None
    if with_key:
        service.make_keys()
        token = service.tokens["admin"]
    result = fuzz.run(service.app, service.db, token, cases=CASES_PER_OPERATION, seed=11)
    assert result.failures == []
    assert result.cases >= 50 and result.reached >= 15
