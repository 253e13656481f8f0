"""Home as it is stored: everything that starts it again, except values of its environment that look like secrets.

Decides which values stay on the host itself (in `remote.vault`); a stored home is whole again only with a link to it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from optimizer.clock import Deadline
from optimizer.errors import NeedsAttention
from optimizer.remote import vault
from optimizer.remote.base import HomeServer, HostLink
from optimizer.secrets import is_secret

ON_THE_HOST = "(kept on the host)"
VAULT_NAME = "home-env"


def keep(link: HostLink, server: HomeServer, *, run_dir: str) -> dict[str, Any]:
    """Return home as a row; secret values of its environment go to the host's vault instead.

    Raises:
        CommandFailed: the host cannot keep them.
    """
    secret = {name: value for name, value in server.env.items() if is_secret(name, value)}
    if secret:
        vault.keep(link, VAULT_NAME, json.dumps(secret).encode(), run_dir=run_dir, deadline=Deadline.after(30))
    shown = {name: ON_THE_HOST if name in secret else value for name, value in server.env.items()}
    return asdict(server) | {"argv": list(server.argv), "env": shown}


def load(link: HostLink, row: dict[str, Any], *, run_dir: str) -> HomeServer:
    """Return a stored home with its secrets from the host's vault.

    Raises:
        NeedsAttention: the vault is gone.
    """
    server = HomeServer(**{**row, "argv": tuple(row.get("argv", ()))})
    missing = [name for name, value in server.env.items() if value == ON_THE_HOST]
    if not missing:
        return server
    kept = vault.fetch(link, VAULT_NAME, run_dir=run_dir, deadline=Deadline.after(30))
    secret = json.loads(kept) if kept else {}
    lost = sorted(set(missing) - set(secret))
    if lost:
        raise NeedsAttention(
            link.name,
            f"{link.name}: values of home's environment are not on the host any more: {', '.join(lost)}",
            remedy="start home by hand, or give its command and env in the host's entry",
        )
    return replace(server, env={**server.env, **{name: secret[name] for name in missing}})
