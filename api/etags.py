"""Versions as ETags, so that nobody overwrites what they have not seen.

They name the edit, not every byte of the answer: counts of trials and leases move without one.
"""

from __future__ import annotations

from fastapi import Request

from api.problems import ApiProblem


def tag(version: int) -> str:
    """Return the ETag of a version."""
    return f'"v{version}"'


def check(request: Request, version: int) -> None:
    """Refuse an edit of another version than the one the caller has seen (`If-Match`).

    Raises:
        ApiProblem: 412.
    """
    given = request.headers.get("if-match")
    if given is None or given.strip() == "*":
        return
    if tag(version) not in [v.strip() for v in given.split(",")]:
        raise ApiProblem(412, f"it is in version {version} now", remedy="read it again, then repeat the change")
