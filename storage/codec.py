"""How bulky things are packed into one column: requests, series of numbers, logs.

Decides the formats, each with a name that is stored beside the data, so that an old row stays readable when a better
format comes. Everything comes back exactly; only logs over their limit are cut, in the middle, and say so.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage.errors import Corrupt
from storage.records import RequestRecord
from storage.rows import field_names
from storage.types import finite

REQUESTS = "columns1+zlib"
SERIES = "doubles1+zlib"
LOG = "zlib"
LEVEL = 6
LOG_LIMIT = 8 * 1024 * 1024
"""Bytes of a log that are kept. A server's log of a night is smaller; one that repeats an error is not."""
LOG_HEAD = 1024 * 1024
"""Of these, bytes from the start: the command line, versions and the memory plan are there."""


@dataclass(frozen=True)
class PackedLog:
    """A compressed log and how much of it was cut out."""

    data: bytes
    original_bytes: int
    cut_bytes: int


def pack_requests(requests: Sequence[RequestRecord]) -> bytes:
    """Pack requests by columns: plain fields as JSON, the times of tokens as doubles."""
    plain = [name for name in field_names(RequestRecord) if name != "token_times_s"]
    columns: dict[str, Any] = {name: [getattr(request, name) for request in requests] for name in plain}
    columns["token_counts"] = [len(request.token_times_s) for request in requests]
    head = json.dumps(finite(columns), separators=(",", ":")).encode("ascii")
    times = pack_doubles([t for request in requests for t in request.token_times_s])
    return len(head).to_bytes(8, "little") + zlib.compress(head, LEVEL) + times


def unpack_requests(codec: str, data: bytes) -> list[RequestRecord]:
    """Return the requests of a packed batch.

    Raises:
        Corrupt: the format is unknown or the data is damaged.
    """
    _expect(codec, REQUESTS)
    try:
        length = int.from_bytes(data[:8], "little")
        inflater = zlib.decompressobj()
        head = inflater.decompress(data[8:])
        if len(head) != length:
            raise ValueError("the head is short")
        columns = json.loads(head)
        times = unpack_doubles(inflater.unused_data)
    except (ValueError, zlib.error) as error:
        raise Corrupt(f"the stored requests are damaged: {error}") from error
    counts = columns.pop("token_counts")
    names = list(columns)
    requests, start = [], 0
    for count, *values in zip(counts, *columns.values(), strict=True):
        fields = dict(zip(names, values, strict=True))
        requests.append(RequestRecord(**fields, token_times_s=times[start : start + count]))
        start += count
    return requests


def pack_doubles(values: Sequence[float]) -> bytes:
    """Pack doubles exactly. Bytes of equal weight are stored together, which compresses far better."""
    array = np.asarray(values, dtype="<f8")
    planes = array.view(np.uint8).reshape(-1, 8).T.tobytes()
    return zlib.compress(planes, LEVEL)


def unpack_doubles(data: bytes) -> list[float]:
    """Return the doubles of `pack_doubles`."""
    planes = np.frombuffer(zlib.decompress(data), dtype=np.uint8)
    values: list[float] = np.ascontiguousarray(planes.reshape(8, -1).T).view("<f8").ravel().tolist()
    return values


def pack_series(times_s: Sequence[float], values: Sequence[float]) -> bytes:
    """Pack the points of one series."""
    if len(times_s) != len(values):
        raise ValueError("a series needs one value for each time")
    return pack_doubles([*times_s, *values])


def unpack_series(codec: str, data: bytes) -> tuple[list[float], list[float]]:
    """Return times and values of a packed series."""
    _expect(codec, SERIES)
    try:
        numbers = unpack_doubles(data)
    except (ValueError, zlib.error) as error:
        raise Corrupt(f"a stored series is damaged: {error}") from error
    half = len(numbers) // 2
    return numbers[:half], numbers[half:]


def pack_log(data: bytes, *, limit: int = LOG_LIMIT, head: int = LOG_HEAD) -> PackedLog:
    """Compress a log; over `limit` bytes its middle is cut out, never its end: that is where a failure is told."""
    cut = max(0, len(data) - limit)
    kept = data
    if cut:
        head = min(head, limit // 2)
        mark = b"\n[... %d bytes cut out here ...]\n" % cut
        kept = data[:head] + mark + data[head + cut :]
    return PackedLog(zlib.compress(kept, LEVEL), len(data), cut)


def unpack_log(codec: str, data: bytes) -> bytes:
    """Return a log as it was kept."""
    _expect(codec, LOG)
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise Corrupt(f"a stored log is damaged: {error}") from error


def _expect(codec: str, known: str) -> None:
    if codec != known:
        raise Corrupt(f"stored data has the unknown format {codec!r}", remedy="a newer Ratchet wrote it: upgrade")
