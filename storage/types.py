"""Column types that behave the same on SQLite and PostgreSQL.

Decides how times, JSON and text are kept; which columns there are is the business of `tables`.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect


class UtcTime(sa.TypeDecorator[datetime]):
    """An aware time, kept in UTC: `timestamptz` on PostgreSQL, sortable text on SQLite. Naive times are refused."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time in UTC, without a zone where the database knows none."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone cannot be stored: {value!r}")
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time as aware UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Json(sa.TypeDecorator[Any]):
    """A JSON document that comes back as it went in, order of keys included.

    PostgreSQL's `json` and not `jsonb`: `jsonb` sorts keys and refuses NUL characters, which logs do contain; the order
    of a specification decides the order in which parameters are searched. NaN and infinities become null.
    """

    impl = sa.JSON(none_as_null=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        """Return the document with numbers that JSON does not know replaced by null."""
        return finite(value)


class CleanText(sa.TypeDecorator[str]):
    """Text that both databases can hold: NUL and lone surrogates become U+FFFD."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Return the text without what PostgreSQL refuses."""
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Real(sa.TypeDecorator[float]):
    """A double; NaN and infinities are no measurement and become NULL."""

    impl = sa.Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        """Return a finite number or None."""
        return None if value is None or not math.isfinite(value) else float(value)


def finite(value: Any) -> Any:
    """Return a copy of a JSON document in which every NaN and infinity is None; the same object when there is none."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return _finite(value)
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
