"""What the model files on the host say (`config.json`), read once before anything is launched.

Decides which files are read and that a drafter which cannot fit its target is refused before a start is spent on it.
What fits is `engines.drafter`, what the model changes in a configuration is each engine's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from optimizer.clock import Deadline
from optimizer.engines import drafter
from optimizer.engines.base import Config, Effective, EngineModule, Hardware, Verdict
from optimizer.engines.registry import find_engine
from optimizer.remote.base import HostLink
from optimizer.search.space import Space
from optimizer.spec import StudySpec

TARGET_FLAGS = ("model-path", "model")
REVISION, DRAFT_REVISION = "revision", "speculative-draft-model-revision"
READ = """
case $1 in "~/"*) set -- "$HOME/${1#"~/"}" "$2" "$3";; esac
file=$1/config.json
if [ ! -f "$file" ]; then
    home=${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}
    hub=${2:-${HF_HUB_CACHE:-${HUGGINGFACE_HUB_CACHE:-$home/hub}}}
    kept=$hub/models--$(printf %s "$1" | sed 's,/,--,g')
    revision=$(cat "$kept/refs/$3" 2>/dev/null) || revision=$3
    file=$kept/snapshots/$revision/config.json
fi
[ -f "$file" ] && head -c 4000000 "$file"
"""
"""Prints the `config.json` of a folder, or of a repository (`owner/name`) that lies in the Hugging Face cache at a
branch, tag or commit."""


@dataclass(frozen=True)
class ModelConfigs:
    """The `config.json` of each model path that could be read."""

    by_path: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    drafts: frozenset[str] = frozenset()
    """Those of the paths that are draft models."""

    def of(self, config: Config, flags: tuple[str, ...]) -> Mapping[str, Any] | None:
        """Return the file of the first of these flags that is set, if it was read."""
        path = next((str(config[name]) for name in flags if name in config), None)
        return self.by_path.get(path) if path is not None else None


def read_configs(link: HostLink, spec: StudySpec, space: Space, *, deadline: Deadline) -> ModelConfigs:
    """Read the target's file and that of every draft model that may be tried; what is not on the host is left out."""
    baseline = spec.baseline_config()
    canonical = find_engine(spec.engine).effective(baseline, spec.engine_version, Hardware()).config
    given = [(k, str(v)) for k, v in {**baseline, **canonical}.items()]
    given += [(p.name, str(v)) for p in space.parameters for v in p.ladder]
    drafts = frozenset(path for name, path in given if name in drafter.DRAFT_FLAGS)
    pinned = str(baseline.get(REVISION, "main"))
    revisions = dict.fromkeys(drafts, _draft_revision(canonical))
    revisions |= {path: pinned for name, path in given if name in TARGET_FLAGS}
    found = {}
    for path, revision in sorted(item for item in revisions.items() if "/" in item[0]):
        content = link.sh(READ, path, _hub(spec.launch.env), revision, deadline=deadline).stdout
        try:
            document = json.loads(content) if content else None
        except ValueError:
            continue
        if isinstance(document, dict):
            found[path] = document
    return ModelConfigs(found, drafts)


def _draft_revision(canonical: Config) -> str:
    """Return what the draft is pinned to: by its own flag, or inside vLLM's JSON flag."""
    try:
        inside = json.loads(str(canonical.get("speculative-config", "{}")))
    except ValueError:
        inside = {}
    return str(canonical.get(DRAFT_REVISION) or (isinstance(inside, dict) and inside.get("revision")) or "main")


def _hub(env: Mapping[str, str]) -> str:
    """Return the cache that the launch environment names; empty when the host's own is used."""
    named = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    return named or (f"{env['HF_HOME']}/hub" if env.get("HF_HOME") else "")


def long_sequences(models: ModelConfigs, config: Config) -> list[str]:
    """Return a warning for every drafter that was made for shorter sequences than the server will take."""
    drafts = (models.by_path.get(path) for path in sorted(models.drafts))
    return [text for draft in drafts for text in drafter.draft_warnings(draft, config)]


def misfits(models: ModelConfigs, baseline: Config, space: Space) -> list[str]:
    """Return why a drafter that the space names is never tried: it fits under none of the methods asked for."""
    ladders = {p.name: p.ladder for p in space.parameters}
    methods = [(n, m) for n in drafter.METHOD_FLAGS for m in ladders.get(n, (baseline.get(n),)) if m is not None]
    target = models.of(baseline, TARGET_FLAGS)
    told = []
    for path in sorted(models.drafts & models.by_path.keys()):
        draft = models.by_path[path]
        found = [drafter.draft_fit(target, draft, {**baseline, name: method}) for name, method in methods]
        if found and all(found):
            told.append(f"{path} is never tried: {found[0][0]}")
    return told


def judge(
    engine: EngineModule, config: Config, version: str | None, hardware: Hardware, models: ModelConfigs
) -> Effective:
    """Say which server really runs for `config` with these models; what cannot start with them is a rejection."""
    target, draft = models.of(config, TARGET_FLAGS), models.of(config, drafter.DRAFT_FLAGS)
    effective = engine.effective(config, version, hardware, model=target, draft_model=draft)
    named = models.of(effective.config, TARGET_FLAGS), models.of(effective.config, drafter.DRAFT_FLAGS)
    if named != (target, draft):  # given under another spelling, or inside a JSON flag
        target, draft = named
        effective = engine.effective(config, version, hardware, model=target, draft_model=draft)
    if effective.verdict is Verdict.REJECTED:
        return effective
    problems = drafter.draft_fit(target, draft, effective.config)
    problems += engine.fails_at_start(effective.config, hardware, target)
    return effective.refused(problems)
