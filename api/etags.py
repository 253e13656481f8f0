"""Versions as ETags: a reader can skip what it has, and an editor cannot overwrite what it has not seen."""

from __future__ import annotations

from fastapi import Request, Response

from api.problems import ApiProblem


def tag(version: int) -> str:
    """Return the ETag of a version."""
    return f'"v{version}"'


def not_modified(request: Request, response: Response, version: int) -> bool:
    """Set the ETag; say whether the caller has this version already."""
    response.headers["ETag"] = tag(version)
    given = [v.strip().removeprefix("W/") for v in request.headers.get("if-none-match", "").split(",")]
    return tag(version) in given


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
