"""The one place that speaks HTTP to a served model outside the load client: probes and counters.

Every call has its own short timeout and never follows redirects or proxies of the environment: what answers must be
the server on that very port.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import httpx


class Probe:
    """A small client for one base URL. Use as a context manager."""

    def __init__(self, base_url: str, *, timeout_s: float = 5.0) -> None:
        self._client = httpx.Client(base_url=base_url, timeout=timeout_s, trust_env=False)

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._client.close()

    def status(self, path: str) -> int | None:
        """Return the HTTP status of a GET, or None when nothing answers."""
        try:
            return self._client.get(path).status_code
        except httpx.HTTPError:
            return None

    def get_json(self, path: str) -> dict[str, Any] | None:
        """Return the JSON object that a GET answers with status 200, else None."""
        try:
            response = self._client.get(path)
            body = response.json() if response.status_code == 200 else None
        except (httpx.HTTPError, ValueError):
            return None
        if isinstance(body, dict):
            return body
        return {"items": body} if isinstance(body, list) else None

    def get_text(self, path: str) -> str:
        """Return the text that a GET answers, or an empty string."""
        try:
            response = self._client.get(path)
        except httpx.HTTPError:
            return ""
        return response.text if response.status_code == 200 else ""

    def post_json(self, path: str, body: dict[str, Any], *, timeout_s: float) -> tuple[int | None, dict[str, Any]]:
        """POST a JSON body; return the status (None: no answer) and the object answered."""
        try:
            response = self._client.post(path, json=body, timeout=timeout_s)
            answer = response.json()
        except (httpx.HTTPError, ValueError):
            return None, {}
        return response.status_code, answer if isinstance(answer, dict) else {"items": answer}

    def call(self, method: str, path: str) -> int | None:
        """Send a request without a body; return the status or None."""
        try:
            return self._client.request(method, path).status_code
        except httpx.HTTPError:
            return None
