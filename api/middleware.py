"""What holds for every request before a route sees it: size, origin, host name, and headers of every answer.

Pure ASGI, so that streams pass unbuffered. Who the caller is, is decided in `auth.py`.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import problem_response

MAX_BODY_BYTES = 1 << 20
"""A study's specification is a few kB; known results of a long history stay far below 1 MiB."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


class SecurityHeaders:
    """Add the security headers to every answer; a route may set a stricter or different policy itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Content-Security-Policy", CSP)
                if scope["path"].startswith("/api/"):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self.app(scope, receive, add)


class BodyLimit:
    """Refuse bodies above `MAX_BODY_BYTES` with 413, told by the header or found while reading."""

    def __init__(self, app: ASGIApp, limit: int = MAX_BODY_BYTES) -> None:
        self.app = app
        self.limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body whole, or refuse it."""
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS:
            await self.app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdigit() or int(length) > self.limit:
            await self._refuse(scope, receive, send)
            return
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self.limit:
                await self._refuse(scope, receive, send)
                return
            if not message.get("more_body", False):
                break
        sent = False

        async def replay() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": b"".join(chunks), "more_body": False}

        await self.app(scope, replay, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = problem_response(413, f"the body is larger than {self.limit} bytes", headers={"Connection": "close"})
        await response(scope, receive, send)


class OwnOrigin:
    """Refuse what other web sites make a browser send, and host names that are not ours.

    Matters most on loopback, where no key is needed: without it any page could start commands through the API, or read
    it through a host name that it rebinds to 127.0.0.1.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str] | None = None) -> None:
        self.app = app
        self.allowed_hosts = frozenset(allowed_hosts) if allowed_hosts is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        reason = self._reason(scope, Headers(scope=scope))
        if reason is None:
            await self.app(scope, receive, send)
        else:
            await problem_response(403, reason)(scope, receive, send)

    def _reason(self, scope: Scope, headers: Headers) -> str | None:
        host = headers.get("host", "")
        if self.allowed_hosts is not None and host_name(host) not in self.allowed_hosts:
            return f"this service does not answer to the name {host_name(host)[:80]!r}"
        if scope["method"] in SAFE_METHODS:
            return None
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return "requests from other web sites are refused"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return "requests from other origins are refused"
        return None


def host_name(host_header: str) -> str:
    """Return the name in a Host header, without its port and brackets, in lower case."""
    if host_header.startswith("["):
        return host_header[1:].partition("]")[0].lower()
    return host_header.partition(":")[0].lower()
