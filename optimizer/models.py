"""What the model files on the host say (`config.json`), read once before anything is launched.

Decides which files are read and that a drafter which cannot fit its target is refused before a start is spent on it.
What fits is `engines.drafter`, what the model changes in a configuration is each engine's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from optimizer.clock import Deadline
from optimizer.engines import drafter
from optimizer.engines.base import Config, Effective, EngineModule, Hardware, Verdict
from optimizer.remote.base import HostLink
from optimizer.search.space import Space
from optimizer.spec import StudySpec

TARGET_FLAGS = ("model-path", "model")
READ = (
    'case $1 in "~/"*) set -- "$HOME/${1#"~/"}";; esac\n[ -f "$1/config.json" ] && head -c 4000000 "$1/config.json"\n'
)


@dataclass(frozen=True)
class ModelConfigs:
    """The `config.json` of each model path that could be read."""

    by_path: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of(self, config: Config, flags: tuple[str, ...]) -> Mapping[str, Any] | None:
        """Return the file of the first of these flags that is set, if it was read."""
        path = next((str(config[name]) for name in flags if name in config), None)
        return self.by_path.get(path) if path is not None else None


def read_configs(link: HostLink, spec: StudySpec, space: Space, *, deadline: Deadline) -> ModelConfigs:
    """Read the target's file and that of every draft model that may be tried; what is no folder there is left out."""
    names = (*TARGET_FLAGS, *drafter.DRAFT_FLAGS)
    paths = {str(v) for k, v in spec.baseline_config().items() if k in names}
    paths |= {str(v) for p in space.parameters if p.name in names for v in p.ladder}
    found = {}
    for path in sorted(p for p in paths if p.startswith(("/", "~/", "./"))):
        content = link.sh(READ, path, deadline=deadline).stdout
        try:
            document = json.loads(content) if content else None
        except ValueError:
            continue
        if isinstance(document, dict):
            found[path] = document
    return ModelConfigs(found)


def judge(
    engine: EngineModule, config: Config, version: str | None, hardware: Hardware, models: ModelConfigs
) -> Effective:
    """Say which server really runs for `config` with these models; a drafter that cannot fit is a rejection."""
    target, draft = models.of(config, TARGET_FLAGS), models.of(config, drafter.DRAFT_FLAGS)
    effective = engine.effective(config, version, hardware, model=target, draft_model=draft)
    if effective.verdict is Verdict.REJECTED or draft is None:
        return effective
    problems = drafter.draft_fit(target, draft, config)
    if not problems:
        return effective
    return replace(effective, verdict=Verdict.REJECTED, reasons=(*effective.reasons, *problems))
