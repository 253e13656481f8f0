"""Packed things come back exactly; damaged ones say so."""

from __future__ import annotations

import zlib

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from storage import codec
from storage.errors import Corrupt
from storage.records import RequestRecord

texts = st.text(max_size=30)
times = st.floats(allow_nan=False, allow_infinity=False)
requests = st.builds(
    RequestRecord,
    prompt=texts,
    kind=texts,
    concurrency=st.integers(0, 100),
    repeat=st.integers(0, 9),
    start_s=times,
    first_token_s=st.none() | times,
    end_s=times,
    prompt_tokens=st.integers(0, 10**6),
    output_tokens=st.integers(0, 10**6),
    stream_tokens=st.integers(0, 10**6),
    token_times_s=st.lists(times, max_size=20),
    chunk_tokens=st.lists(st.integers(0, 9), max_size=20),
    finish_reason=st.none() | texts,
    error=st.none() | texts,
    text=texts,
    engine_timings=st.dictionaries(texts, times | st.none(), max_size=3),
)


@given(st.lists(requests, max_size=6))
@settings(max_examples=60, deadline=None)
def test_requests_come_back_exactly(given_requests: list[RequestRecord]) -> None:
    packed = codec.pack_requests(given_requests)
    assert codec.unpack_requests(codec.REQUESTS, packed) == given_requests


@given(st.lists(st.tuples(st.floats(), st.floats()), max_size=50))
@settings(max_examples=60, deadline=None)
def test_series_come_back_bit_by_bit(points: list[tuple[float, float]]) -> None:
    packed = codec.pack_series([t for t, _ in points], [v for _, v in points])
    found_times, found_values = codec.unpack_series(codec.SERIES, packed)
    assert repr(list(zip(found_times, found_values, strict=True))) == repr(points)


@given(st.binary(max_size=3000), st.integers(100, 2000))
@settings(max_examples=60, deadline=None)
def test_a_log_keeps_its_start_and_its_end(data: bytes, limit: int) -> None:
    packed = codec.pack_log(data, limit=limit, head=50)
    kept = codec.unpack_log(codec.LOG, packed.data)
    assert packed.original_bytes == len(data)
    if len(data) <= limit:
        assert (kept, packed.cut_bytes) == (data, 0)
    else:
        assert packed.cut_bytes == len(data) - limit
        assert kept.startswith(data[:50])
        assert kept.endswith(data[-(limit - 50) :])
        assert b"%d bytes cut out" % packed.cut_bytes in kept


def test_token_times_pack_well() -> None:
    steady = [0.25 + index * 0.011 for index in range(20_000)]
    assert len(codec.pack_doubles(steady)) < 0.75 * 8 * len(steady)


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"nonsense", zlib.compress(b"{}")])
def test_damaged_data_says_so(data: bytes) -> None:
    for unpack in (
        lambda: codec.unpack_requests(codec.REQUESTS, data),
        lambda: codec.unpack_series(codec.SERIES, data),
        lambda: codec.unpack_log(codec.LOG, data[:-1]),
    ):
        with pytest.raises(Corrupt, match="damaged"):
            unpack()


def test_an_unknown_format_says_who_wrote_it() -> None:
    with pytest.raises(Corrupt, match="unknown format 'v9'") as told:
        codec.unpack_log("v9", b"")
    assert "newer Ratchet" in told.value.remedy
