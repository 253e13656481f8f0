"""How a vLLM server is started.

Decides the words of the command and the few flags that identity and measuring need. Quoting and starting are the
remote side's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.engines.argv import drop_flags, render_flags, secret_names
from optimizer.engines.base import Config, Effective, FlagValue, LaunchPlan, split_env
from optimizer.engines.resolution import start
from optimizer.engines.vllm.flags import put_together, table

OURS = ("host", "port", "served-model-name", "disable-log-stats")
DEFAULT_PORT = 8000
DEFAULT_HOST = "127.0.0.1"


def flags_to_argv(flags: Mapping[str, FlagValue]) -> list[str]:
    """Render flags in the order given. Raises ValueError for a name outside the grammar."""
    return render_flags(put_together(flags), table().ever)


def launch_plan(
    command: Sequence[str],
    config: Config,
    cwd: str | None,
    effective: Effective,
    served_model: str,
    installed: frozenset[str] = frozenset(),
) -> LaunchPlan:
    """Plan one server; adds host, port and served model name, and keeps the statistics on."""
    del installed  # every version has what is added here
    flags, env = split_env(config)
    known = table().ever
    asked = start(config, table(), None)
    host = asked.text("host") or DEFAULT_HOST
    port = asked.number("port") or DEFAULT_PORT
    own: dict[str, FlagValue] = {"host": host, "port": port, "served-model-name": served_model}
    kept = drop_flags(flags, OURS, known)
    words = list(command)
    model = kept.pop("model", None)
    if model is not None and _wants_model_first(words):
        words.append(str(model))
    elif model is not None:
        kept = {"model": model, **kept}
    return LaunchPlan(
        argv=(*words, *render_flags(put_together({**kept, **own}), known)),
        env=env,
        cwd=cwd,
        port=port,
        bind_host=host,
        served_model=served_model.split()[0],
        expected=dict(effective.config),
        secret_env=secret_names(env),
    )


def _wants_model_first(words: Sequence[str]) -> bool:
    """`vllm serve` takes the model as its first word; `--model` there is deprecated."""
    return bool(words) and words[-1] == "serve"
