"""How llama-server is started.

Decides the words of the command and the few flags that identity and measuring need. Quoting and starting are the
remote side's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.engines.argv import drop_flags, render_flags, secret_names
from optimizer.engines.base import Config, Effective, FlagValue, LaunchPlan, split_env
from optimizer.engines.llamacpp.flags import table
from optimizer.engines.resolution import start

OURS = ("host", "port", "alias", "metrics", "slots", "fit")
DEFAULT_PORT = 8080
DEFAULT_HOST = "127.0.0.1"


def flags_to_argv(flags: Mapping[str, FlagValue]) -> list[str]:
    """Render flags in the order given. Raises ValueError for a name outside the grammar."""
    return render_flags(flags, table().ever)


def launch_plan(
    command: Sequence[str],
    config: Config,
    cwd: str | None,
    effective: Effective,
    served_model: str,
    installed: frozenset[str] = frozenset(),
) -> LaunchPlan:
    """Plan one server; adds host, port, alias and, where the build has them, metrics, slots and a fixed `--fit`."""
    flags, env = split_env(config)
    known = table().ever
    asked = start(config, table(), None)
    host = asked.text("host") or DEFAULT_HOST
    port = asked.number("port") or DEFAULT_PORT
    own: dict[str, FlagValue] = {"host": host, "port": port, "alias": served_model}
    useful: dict[str, FlagValue] = {"metrics": True, "slots": True, "fit": asked.values.get("fit", "off")}
    own |= {name: value for name, value in useful.items() if not installed or name in installed}
    kept = drop_flags(flags, OURS, known)
    return LaunchPlan(
        argv=(*command, *render_flags({**kept, **own}, known)),
        env=env,
        cwd=cwd,
        port=port,
        bind_host=host,
        served_model=served_model.split(",")[0].strip(),
        expected=dict(effective.config),
        secret_env=secret_names(env),
    )
