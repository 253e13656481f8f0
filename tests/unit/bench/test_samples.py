"""Raw samples are stored whole."""

from __future__ import annotations

from dataclasses import fields

from optimizer.bench.base import RequestSample
from optimizer.trial_log import request_row, sample_of
from storage import codec
from tests.unit.bench.fakes import sample


def test_a_stored_request_comes_back_whole() -> None:
    one = sample(usage_given=False, tokens_exact=True, cached_tokens=7, engine_timings={"cache_n": 7}, repeat=2)
    plain = sample()
    for name in ("usage_given", "tokens_exact", "cached_tokens", "engine_timings", "repeat"):
        assert getattr(one, name) != getattr(plain, name), "each differs from its default"
    back = [sample_of(row) for row in codec.unpack_requests(codec.REQUESTS, codec.pack_requests([request_row(one)]))]
    assert back == [one]
    assert {f.name for f in fields(RequestSample)} == set(vars(request_row(one)))
