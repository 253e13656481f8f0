"""Cursor paging: `limit`, `after`, `next`. A cursor is opaque to callers and says where the next page begins."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated

from fastapi import Query

from api.problems import ApiProblem

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
COUNT = re.compile(r"-?[0-9]{1,15}")

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Most items in the answer")]
After = Annotated[str | None, Query(max_length=200, description="`next` of the page before")]


def encode(position: str | int) -> str:
    """Make a cursor from the last item's place in the order."""
    return base64.urlsafe_b64encode(f"v1:{position}".encode()).decode().rstrip("=")


def decode(cursor: str | None) -> str | None:
    """Read a cursor. Raises ApiProblem 422 when it is not one of ours."""
    if cursor is None:
        return None
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError) as error:
        raise _bad(cursor) from error
    if not text.startswith("v1:") or "\x00" in text:
        raise _bad(cursor)
    return text.removeprefix("v1:")


def decode_int(cursor: str | None) -> int | None:
    """Read a cursor that counts. Raises ApiProblem 422."""
    text = decode(cursor)
    if text is None:
        return None
    if not COUNT.fullmatch(text):
        raise _bad(cursor or "")
    return int(text)


def _bad(cursor: str) -> ApiProblem:
    detail = "the request has 1 problem"
    return ApiProblem(
        422,
        detail,
        problems=[{"path": "query.after", "message": "is not a cursor of this listing", "value": cursor, "hint": None}],
        remedy="pass on `next` of the page before, unchanged",
    )
