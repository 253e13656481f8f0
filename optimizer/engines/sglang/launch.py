"""How an SGLang server is started.

Decides the words of the command and the few flags that identity and measuring need. Quoting and starting are the
remote side's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.engines.argv import drop_flags, render_flags, secret_names
from optimizer.engines.base import Config, Effective, FlagValue, LaunchPlan, split_env
from optimizer.engines.resolution import start
from optimizer.engines.sglang.flags import table

OURS = ("host", "port", "served-model-name", "enable-metrics")
DEFAULT_PORT = 30000
DEFAULT_HOST = "127.0.0.1"
NEUTRAL_ENV = {"SGLANG_SIMULATE_ACC_LEN": "a faked acceptance must never be measured"}
"""Variables that are taken out of every launch."""


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
    """Plan one server; adds host, port, served model name and metrics."""
    del installed  # every version has what is added here
    flags, env = split_env(config)
    known = table().ever
    asked = start(config, table(), None)
    host = asked.text("host") or DEFAULT_HOST
    port = asked.number("port") or DEFAULT_PORT
    own: dict[str, FlagValue] = {"host": host, "port": port, "served-model-name": served_model, "enable-metrics": True}
    kept = drop_flags(flags, OURS, known)
    kept_env = {name: value for name, value in env.items() if name not in NEUTRAL_ENV}
    return LaunchPlan(
        argv=(*command, *render_flags({**kept, **own}, known)),
        env=kept_env,
        cwd=cwd,
        port=port,
        bind_host=host,
        served_model=served_model,
        expected=dict(effective.config),
        secret_env=secret_names(kept_env),
    )
