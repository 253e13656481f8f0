"""Which host key is the right one: pinned, or listed in the user's known_hosts; anything else is refused.

Decides trust only. An unknown key is never accepted silently: `fetch_fingerprint` shows it to a person (`ratchet host
add`), who compares it with the host's own and pins it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

import paramiko

from optimizer.errors import HostKeyRejected
from optimizer.remote.target import Target

TYPE_ORDER = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


def fingerprint(key_blob: bytes) -> str:
    """Return `SHA256:...` of a public key blob, as ssh-keygen prints it."""
    digest = hashlib.sha256(key_blob).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def known_keys(target: Target) -> list[tuple[str, bytes]]:
    """Return (type, blob) of every key that the user's known_hosts files list for this host."""
    name = target.known_hosts_name
    found: list[tuple[str, bytes]] = []
    for path in target.known_hosts:
        try:
            lines = Path(path).read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        for line in lines:
            entry = _parse_line(line, name)
            if entry is not None:
                found.append(entry)
    return found


def _parse_line(line: str, name: str) -> tuple[str, bytes] | None:
    parts = line.split()
    if len(parts) < 3 or parts[0].startswith(("#", "@")):
        return None  # markers (@revoked, @cert-authority) grant nothing here
    if not any(_matches(pattern, name) for pattern in parts[0].split(",")):
        return None
    try:
        return parts[1], base64.b64decode(parts[2], validate=True)
    except ValueError:
        return None


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("|1|"):
        try:
            _, _, salt, digest = pattern.split("|")
            expected = hmac.new(base64.b64decode(salt), name.encode(), hashlib.sha1).digest()
            return hmac.compare_digest(expected, base64.b64decode(digest))
        except ValueError:
            return False
    return pattern.lower() == name.lower()


def pinned_types(pin: str | None, target: Target) -> Sequence[str]:
    """Return the key types to ask the host for, the trusted ones first."""
    if pin and not pin.startswith("SHA256:"):
        return (pin.split()[0], *TYPE_ORDER)
    if pin:
        return TYPE_ORDER
    return (*dict.fromkeys(kind for kind, _ in known_keys(target)), *TYPE_ORDER)


def trusted(key: paramiko.PKey, pin: str | None, target: Target) -> bool:
    """Say whether this key is the pinned one, or one of known_hosts when nothing is pinned."""
    blob = key.asbytes()
    if pin:
        return any(_same(blob, one) for one in pin.splitlines() if one.strip())
    return any(blob == known for _, known in known_keys(target))


def _same(blob: bytes, pin: str) -> bool:
    pin = pin.strip()
    if pin.startswith("SHA256:"):
        return hmac.compare_digest(fingerprint(blob), pin.rstrip("="))
    parts = pin.split()
    return len(parts) >= 2 and base64.b64encode(blob).decode() == parts[1]


def rejection(host: str, key: paramiko.PKey, pin: str | None, target: Target) -> HostKeyRejected:
    """Return the error for a key that is not trusted: changed, or unknown."""
    seen = f"{key.get_name()} {fingerprint(key.asbytes())}"
    where = f"{target.hostname}:{target.port}"
    if pin:
        return HostKeyRejected(
            host,
            f"{host}: the host key of {where} has changed: pinned {_short(pin)}, offered {seen}",
            remedy=f"if the host was reinstalled, check the fingerprint on its console (`ssh-keygen -lf "
            f"/etc/ssh/ssh_host_ed25519_key.pub`) and write it into the host's file: `ssh: {{host_key: ...}}`; "
            f"otherwise somebody is in between ({target.label})",
        )
    if known_keys(target):
        return HostKeyRejected(
            host,
            f"{host}: the host key of {where} has changed: offered {seen}, known_hosts has another one",
            remedy=f"if the host was reinstalled: `ssh-keygen -R '{target.known_hosts_name}'`, then connect with ssh",
        )
    return HostKeyRejected(
        host,
        f"{host}: the host key of {where} is unknown: offered {seen}",
        remedy="compare it with the host's own key, then trust it: connect once with ssh, or write "
        '`ssh: {host_key: "' + fingerprint(key.asbytes()) + "\"}` into the host's file",
    )


def _short(pin: str) -> str:
    first = pin.splitlines()[0].strip()
    if first.startswith("SHA256:"):
        return first
    parts = first.split()
    try:
        return f"{parts[0]} {fingerprint(base64.b64decode(parts[1]))}"
    except (IndexError, ValueError):
        return "an unreadable key"
