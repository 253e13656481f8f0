"""A small typed client of the service, and the one module of `api` that uses httpx.

    from api.client import Ratchet
    with Ratchet("http://127.0.0.1:8090", key="rk_...") as ratchet:
        study = ratchet.create_study(spec, start=True)
        for event in ratchet.events(study["id"]): ...

Answers are the dictionaries of the JSON, with the types of `api.answers`, as /openapi.json describes them. Errors are
those of `optimizer.errors`, so that the command line tells a refusal of the service like one of its own.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar, cast
from urllib.parse import quote

import httpx

from api.answers import (
    BestOut,
    CheckOut,
    HostCheckOut,
    HostOut,
    ImportanceOut,
    KeyMade,
    KeyOut,
    RequestOut,
    RestoreOut,
    SeriesOut,
    StudyDetail,
    StudyOut,
    TrialDetail,
    TrialOut,
    VerdictOut,
    WhoOut,
    WindowOut,
)
from optimizer.errors import BadInput, Conflict, NotFound, Problem, RatchetError

DEFAULT_URL = "http://127.0.0.1:8090"
TIMEOUT_S = 30.0
SLOW_TIMEOUT_S = 2000.0
"""For what touches a host: the doctor, and a restore that loads a large model."""
RETRIES = 3
STREAM_SILENCE_S = 60.0
"""The service sends a comment every 15 s; four of them missing means that it is gone."""
PAGE = 200
Document = dict[str, Any]
AnswerT = TypeVar("AnswerT")


class TransportError(RatchetError):
    """The service could not be reached."""


class Refused(RatchetError):
    """The service answered with an error that is not about the input: no usable key, not allowed, or its own fault."""

    def __init__(self, message: str, *, status: int, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


@dataclass(frozen=True)
class Event:
    """One server-sent event; `id` resumes the stream after it."""

    id: int
    kind: str
    data: Document


class Ratchet:
    """A connection to one service. Safe to use from one thread at a time; close it, or use it as a context manager."""

    def __init__(self, url: str | None = None, key: str | None = None, *, transport: Any = None) -> None:
        self.url = (url or os.environ.get("RATCHET_API_URL") or DEFAULT_URL).rstrip("/")
        key = (key or os.environ.get("RATCHET_API_KEY") or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise BadInput("the key has characters that no key has", remedy="copy it again: rk_, letters and digits")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            self._http = httpx.Client(base_url=self.url, headers=headers, timeout=TIMEOUT_S, transport=transport)
        except httpx.InvalidURL as error:
            raise BadInput(f"{self.url!r} is not a URL", remedy=f"like {DEFAULT_URL}") from error

    def __enter__(self) -> Ratchet:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # Studies

    def create_study(self, spec: Mapping[str, Any], *, start: bool = False) -> StudyDetail:
        """Create a study; repeated by itself when the connection breaks, without creating two."""
        return self._post(StudyDetail, "/studies", dict(spec), params={"start": str(start).lower()})

    def studies(self, *, state: str | None = None) -> Iterator[StudyOut]:
        """Yield every study, newest first."""
        return self._pages(StudyOut, "/studies", {"state": state} if state else {})

    def study(self, study: str) -> StudyDetail:
        """Return a study by id or name."""
        return self._json(StudyDetail, "GET", _path("studies", study))

    def check_study(self, spec: Mapping[str, Any]) -> CheckOut:
        """Return every mistake in a specification, without creating anything."""
        return self._json(CheckOut, "POST", "/studies/check", body=dict(spec))

    def start(self, study: str) -> StudyOut:
        """Queue a study."""
        return self._post(StudyOut, _path("studies", study, "start"))

    def pause(self, study: str) -> StudyOut:
        """Put the original server back and wait to be resumed."""
        return self._post(StudyOut, _path("studies", study, "pause"))

    def resume(self, study: str) -> StudyOut:
        """Go on with a paused study."""
        return self._post(StudyOut, _path("studies", study, "resume"))

    def stop(self, study: str) -> StudyOut:
        """End a study for good."""
        return self._post(StudyOut, _path("studies", study, "stop"))

    def delete_study(self, study: str) -> None:
        """Forget a study that is not active."""
        self._request("DELETE", _path("studies", study))

    def change_study(self, study: str, *, priority: int | None = None, window: str | None = None) -> StudyDetail:
        """Change the priority or the window (an empty text takes it away)."""
        body = {k: v for k, v in {"priority": priority, "window": window}.items() if v is not None}
        return self._json(StudyDetail, "PATCH", _path("studies", study), body=body)

    def trials(self, study: str, *, state: str | None = None, kind: str | None = None) -> Iterator[TrialOut]:
        """Yield the trials of a study by number."""
        filters = {k: v for k, v in {"state": state, "kind": kind}.items() if v}
        return self._pages(TrialOut, _path("studies", study, "trials"), filters)

    def trial(self, study: str, number: int) -> TrialDetail:
        """Return one trial with its measurements."""
        return self._json(TrialDetail, "GET", _path("studies", study, "trials", number))

    def trial_log(self, study: str, number: int) -> str:
        """Return the log of a trial's server."""
        return self._request("GET", _path("studies", study, "trials", number, "log")).text

    def trial_requests(self, study: str, number: int) -> Iterator[RequestOut]:
        """Yield the raw requests of a trial."""
        return self._pages(RequestOut, _path("studies", study, "trials", number, "requests"), {})

    def trial_series(self, study: str, number: int, *, source: str | None = None) -> Iterator[SeriesOut]:
        """Yield what was sampled beside a trial: the engine's telemetry (`engine`) and the GPUs (`gpu0`, ...)."""
        filters = {"source": source} if source else {}
        return self._pages(SeriesOut, _path("studies", study, "trials", number, "series"), filters)

    def best(self, study: str) -> BestOut:
        """Return the best configuration known."""
        return self._json(BestOut, "GET", _path("studies", study, "best"))

    def verdict(self, study: str) -> VerdictOut:
        """Return what the evidence shows."""
        return self._json(VerdictOut, "GET", _path("studies", study, "verdict"))

    def importance(self, study: str) -> ImportanceOut:
        """Return how much each parameter explains."""
        return self._json(ImportanceOut, "GET", _path("studies", study, "importance"))

    def report(self, study: str, form: str = "html") -> str:
        """Return the report as `html`, `md` or `json` text."""
        return self._request("GET", _path("studies", study, "report"), params={"format": form}).text

    def export(self, study: str, form: str = "json") -> bytes:
        """Return the study as a `csv`, `json`, `optuna` or `whole` file."""
        path = _path("studies", study, "export")
        return self._request("GET", path, params={"format": form}, timeout_s=SLOW_TIMEOUT_S).content

    def events(self, study: str | None = None, *, after: int = 0) -> Iterator[Event]:
        """Yield events as they happen, for ever; a broken stream is resumed after the last one seen."""
        path = _path("studies", study, "events") if study else "/events"
        broken = 0
        while True:
            try:
                for event in self._stream(path, after):
                    after, broken = event.id, 0
                    yield event
            except TransportError:
                broken += 1
                if broken > RETRIES:
                    raise
            time.sleep(min(0.5 * 2**broken, 5.0))

    # Hosts

    def add_host(self, entry: Mapping[str, Any], *, replace: bool = False) -> HostOut:
        """Register a host."""
        return self._post(HostOut, "/hosts", dict(entry), params={"replace": str(replace).lower()})

    def hosts(self) -> Iterator[HostOut]:
        """Yield every host by name."""
        return self._pages(HostOut, "/hosts", {})

    def host(self, name: str) -> HostOut:
        """Return a host."""
        return self._json(HostOut, "GET", _path("hosts", name))

    def check_host(self, name: str) -> HostCheckOut:
        """Run the doctor."""
        return self._json(HostCheckOut, "POST", _path("hosts", name, "check"), timeout_s=SLOW_TIMEOUT_S)

    def restore_host(self, name: str) -> RestoreOut:
        """Put the original server back."""
        return self._json(RestoreOut, "POST", _path("hosts", name, "restore"), timeout_s=SLOW_TIMEOUT_S)

    def remove_host(self, name: str) -> None:
        """Forget a host."""
        self._request("DELETE", _path("hosts", name))

    # Windows and keys

    def add_window(self, window: Mapping[str, Any]) -> WindowOut:
        """Create a window."""
        return self._post(WindowOut, "/windows", dict(window))

    def windows(self) -> Iterator[WindowOut]:
        """Yield every window by name."""
        return self._pages(WindowOut, "/windows", {})

    def window(self, window: str) -> WindowOut:
        """Return a window by id or name."""
        return self._json(WindowOut, "GET", _path("windows", window))

    def switch_window(self, window: str, *, enabled: bool) -> WindowOut:
        """Switch a window on or off."""
        return self._json(WindowOut, "PATCH", _path("windows", window), body={"enabled": enabled})

    def remove_window(self, window: str) -> None:
        """Remove a window."""
        self._request("DELETE", _path("windows", window))

    def night(self, window: str, local_date: str, form: str = "md") -> str:
        """Return the report of one night as `md`, `html` or `json` text."""
        return self._request("GET", _path("windows", window, "nights", local_date), params={"format": form}).text

    def create_key(self, name: str, scopes: list[str], *, expires_days: float | None = None) -> KeyMade:
        """Make a key; its text is in the answer and nowhere else."""
        return self._json(KeyMade, "POST", "/keys", body={"name": name, "scopes": scopes, "expires_days": expires_days})

    def keys(self) -> Iterator[KeyOut]:
        """Yield every key."""
        return self._pages(KeyOut, "/keys", {}, paged=False)

    def revoke_key(self, key: str) -> KeyOut:
        """Revoke a key by id or name."""
        return self._json(KeyOut, "DELETE", _path("keys", key))

    def me(self) -> WhoOut:
        """Return who the service takes the caller for."""
        return self._json(WhoOut, "GET", "/me")

    # How it is said

    def _post(
        self, kind: type[AnswerT], path: str, body: Document | None = None, *, params: dict[str, str] | None = None
    ) -> AnswerT:
        """POST with an idempotency key, so that it may be repeated when the connection breaks."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        for attempt in range(RETRIES):
            try:
                return self._json(kind, "POST", path, body=body, params=params, headers=headers)
            except TransportError:
                if attempt == RETRIES - 1:
                    raise
                time.sleep(0.2 * 2**attempt)
        raise AssertionError("unreachable")

    def _pages(
        self, kind: type[AnswerT], path: str, filters: dict[str, str], *, paged: bool = True
    ) -> Iterator[AnswerT]:
        params: dict[str, Any] = {**filters, "limit": PAGE} if paged else {}
        while True:
            page = self._json(dict[str, Any], "GET", path, params=params)
            yield from page["items"]
            if not page["next"]:
                return
            params["after"] = page["next"]

    def _json(self, kind: type[AnswerT], method: str, path: str, **how: Any) -> AnswerT:
        """Return the answer as what the interface describes it to be; `kind` is for readers and type checkers."""
        response = self._request(method, path, **how)
        try:
            return cast(AnswerT, response.json())
        except ValueError as error:
            raise TransportError(f"what answers at {self.url} is not Ratchet", remedy="check --api URL") from error

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: Document | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> httpx.Response:
        try:
            response = self._http.request(
                method, f"/api/v1{path}", json=body, params=params, headers=headers, timeout=timeout_s
            )
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if not response.is_success:
            raise _refusal(response)
        return response

    def _stream(self, path: str, after: int) -> Iterator[Event]:
        timeout = httpx.Timeout(TIMEOUT_S, read=STREAM_SILENCE_S)
        headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
        try:
            with self._http.stream("GET", f"/api/v1{path}", headers=headers, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    raise _refusal(response)
                yield from _events(response.iter_lines())
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: httpx.HTTPError) -> TransportError:
        reason = str(error) or type(error).__name__
        return TransportError(
            f"no answer from {self.url}: {reason}", remedy="is `ratchet serve` running there? give --api URL"
        )


def post_json(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> int:
    """POST a JSON text anywhere and return the status; redirects are not followed.

    Raises:
        TransportError: nothing answered.
    """
    try:
        return httpx.post(url, content=body, headers=dict(headers), timeout=timeout_s).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise TransportError(f"no answer: {error or type(error).__name__}") from error


def _events(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        if line == "":
            if "data" in fields and "id" in fields:
                yield Event(int(fields["id"]), fields.get("event", ""), json.loads(fields["data"]))
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")


def _refusal(response: httpx.Response) -> RatchetError:
    try:
        body = response.json()
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    detail = str(body.get("detail") or f"the service answered {response.status_code}")
    remedy = str(body.get("remedy") or "")
    if response.is_redirect:
        there = response.headers.get("location", "")
        return Refused(
            f"{response.url} sends to {there}", status=response.status_code, remedy="give that address as --api URL"
        )
    if response.status_code == 422:
        problems = [
            Problem(str(p.get("path", "")), str(p.get("message", "")), p.get("value"), str(p.get("hint") or ""))
            for p in body.get("errors", [])
        ]
        return BadInput(detail, problems, remedy=remedy)
    if response.status_code == 404:
        return NotFound(detail, remedy=remedy)
    if response.status_code == 409:
        return Conflict(detail, remedy=remedy)
    return Refused(detail, status=response.status_code, remedy=remedy)


def _path(*parts: str | int) -> str:
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)
