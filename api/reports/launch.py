"""Launch commands as a person compares them: which flags and variables two command lines differ in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optimizer.remote.launcher import masked_argv, masked_flags
from storage.records import TrialRecord

IDENTITY = frozenset({"--alias", "--served-model-name", "--port", "--host", "--metrics", "--enable-metrics"})
"""What Ratchet sets to recognise and reach its own server; no part of the configuration."""
ASSIGNMENT = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True)
class Change:
    """One flag or variable that differs; None where it is absent, an empty text for a bare flag.

    `gain` is the fraction by which the best is faster than the best with this one undone (None: not accounted for),
    `gain_sd` its standard deviation; `sure` when it is two of them away from nothing.
    """

    name: str
    before: str | None
    after: str | None
    gain: float | None = None
    gain_sd: float | None = None
    sure: bool | None = None


def read(command: str) -> dict[str, str]:
    """Read a command line into its flags (`--flag`: value) and variables (`NAME`: value)."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    found: dict[str, str] = {}
    flag = ""
    started = False
    for word in words:
        if word.startswith("-") and not _is_number(word):
            flag, equals, value = word.partition("=")
            found[flag] = value if equals else ""
            started = True
        elif flag:
            found[flag] = f"{found[flag]} {word}".strip()
        elif not started and ASSIGNMENT.match(word):
            name, _, value = word.partition("=")
            found[name] = value
    return found


def diff(before: str, after: str) -> list[Change]:
    """Return what differs from `before` to `after`, by name."""
    old, new = read(before), read(after)
    names = sorted((old.keys() | new.keys()) - IDENTITY, key=lambda n: n.lstrip("-"))
    return [Change(n, old.get(n), new.get(n)) for n in names if old.get(n) != new.get(n)]


def with_gains(changes: Sequence[Change], contributions: Sequence[Mapping[str, Any]]) -> list[Change]:
    """Add what the account of a verdict (`optimizer.search.explain`) says each change brought, by parameter."""
    found = {str(c["name"]).removeprefix("env."): c for c in contributions}
    told = []
    for change in changes:
        part = found.get(change.name.lstrip("-"))
        told.append(replace(change, gain=part["gain"], gain_sd=part["sd"], sure=part["sure"]) if part else change)
    return told


def wrap(command: str, width: int = 100) -> str:
    """Break a long command line before its flags, with backslashes, so that it can be read and still pasted."""
    if len(command) <= width:
        return command
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    prefix = ""
    if len(words) > 3 and words[0] == "cd" and words[2] == "&&":
        prefix, words = f"cd {shlex.quote(words[1])} && \\\n", words[3:]
    mark = "--" if any(w.startswith("--") for w in words) else "-"
    lines: list[str] = []
    current = ""
    for word in words:
        quoted = shlex.quote(word) if not ASSIGNMENT.match(word) else _assignment(word)
        if current and word.startswith(mark) and not _is_number(word):
            lines.append(current)
            current = f"  {quoted}"
        else:
            current = f"{current} {quoted}".strip() if not current.startswith("  ") else f"{current} {quoted}"
    lines.append(current)
    return prefix + " \\\n".join(lines)


def home_line(home: Mapping[str, Any] | None) -> str:
    """Return the original server's command from what was found of it."""
    if not home:
        return ""
    argv = home.get("argv") or home.get("command") or []
    return shlex.join(masked_argv([str(a) for a in argv])) if argv else str(home.get("systemd_unit") or "")


def shown_home(home: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the original server without what may be secret: it comes from a live process.

    Of its variables only the names are left, and values of flags such as `--api-key` are masked.
    """
    if home is None:
        return None
    words = {k: masked_argv([str(a) for a in home[k]]) for k in ("argv", "command") if home.get(k)}
    return {k: v for k, v in home.items() if k != "env"} | words | {"env_names": sorted(home.get("env") or {})}


def shown_flags(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's configurations with the secrets masked that its server was given, or tells of itself."""
    return {k: masked_flags(trial[k]) for k in ("params", "effective", "running_config") if trial.get(k)}


def changed_parameters(trial: TrialRecord, base: TrialRecord | None, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the searched parameters of `trial` whose value is not the original's (None: removed)."""
    launch = spec.get("launch") or {}
    baseline = spec.get("baseline") or {}
    original: dict[str, Any] = {**(launch.get("flags") or {}), **(baseline.get("flags") or {})}
    original |= {f"env.{k}": v for k, v in {**(launch.get("env") or {}), **(baseline.get("env") or {})}.items()}
    changed = {k: v for k, v in trial.params.items() if original.get(k) != v}
    if trial.arm != "baseline":
        searched = {*((spec.get("space") or {}).get("parameters") or {}), *(base.params if base else {})}
        changed |= {k: None for k in sorted(searched) if k in original and k not in trial.params}
    return changed


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _assignment(word: str) -> str:
    name, _, value = word.partition("=")
    return f"{name}={shlex.quote(value)}" if value else f"{name}="
