"""Merge argparse dumps of several versions of an engine into one `flags.json`.

    python -m benchmarks.engines.merge_flags ENGINE OUT.json VERSION=DUMP.json ...

A dump is a JSON list of argparse actions: options, dest, action, nargs, type, choices, default, const. A flag that
stays the same over neighbouring versions becomes one row with `since` and `until`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

KINDS = {"int": "int", "float": "float", "loads": "json", "human_readable_int": "size", "json_list_type": "json"}
PREFERRED = frozenset({"--tp-size", "--pp-size", "--dp-size", "--ep-size"})
"""Names that stay canonical where old versions put a longer spelling first."""
JSON_TYPES = {"parse_cuda_graph_config_arg"}


def canonical_name(actions: list[dict[str, Any]]) -> str:
    """The option spelled like the destination, else the first long one."""
    options = [o for a in actions for o in a["options"] if o.startswith("--")]
    if short := next((o for o in options if o in PREFERRED), None):
        return short.removeprefix("--")
    wanted = "--" + actions[0]["dest"].replace("_", "-")
    return (wanted if wanted in options else options[0]).removeprefix("--")


def row(name: str, action: dict[str, Any], extra: list[str]) -> dict[str, Any]:
    """One flag of one version."""
    options = [o for o in action["options"] if o.startswith("--")] + extra
    negative = [o.removeprefix("--") for o in options if action["action"] == "BooleanOptionalAction" and is_no(o)]
    aliases = [o.removeprefix("--") for o in options if o.removeprefix("--") not in {name, *negative}]
    short = [o.removeprefix("-") for o in action["options"] if not o.startswith("--")]
    found: dict[str, Any] = {"name": name, **kind_of(action)}
    for key, value in (("aliases", aliases), ("negative", negative), ("short", short)):
        if value:
            found[key] = value
    default = action["default"]
    if isinstance(default, list):
        default = " ".join(map(str, default)) or None
    if default not in (None, "==SUPPRESS==") and found["kind"] != "bare":
        found["default"] = default
    return found


def is_no(option: str) -> bool:
    """Say whether an option is the negative form of a switch."""
    return option.startswith("--no-")


def kind_of(action: dict[str, Any]) -> dict[str, Any]:
    """Kind, and choices or item type where there are any."""
    if action["action"] == "BooleanOptionalAction":
        return {"kind": "switch"}
    if action["nargs"] in ("+", "*"):
        item = KINDS.get(action["type"] or "", "str")
        return {"kind": "list", "item": item, **({"choices": action["choices"]} if action["choices"] else {})}
    if action["nargs"] == 0:
        return {"kind": "bare"}
    if action["choices"]:
        return {"kind": "choice", "choices": action["choices"]}
    kind = "json" if action["type"] in JSON_TYPES else KINDS.get(action["type"] or "", "str")
    return {"kind": kind, **({"optional_value": True} if action["nargs"] == "?" else {})}


def rows_of(actions: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """All flags of one version by canonical name; aliases that share a destination are folded in."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for action in actions:
        if action["action"] not in {"_HelpAction", "_VersionAction"} and action["options"]:
            groups.setdefault(action["dest"], []).append(action)
    found: dict[str, dict[str, Any]] = {}
    for dest, group in groups.items():
        name = canonical_name(group)
        own = next(a for a in group if f"--{name}" in a["options"])
        same = [a for a in group if a is not own and "Const" not in a["action"]]
        found[name] = row(name, own, [o for a in same for o in a["options"]])
        if dest.replace("_", "-") != name and f"--{name}" not in PREFERRED:
            found[name]["dest"] = dest
        if own["action"] == "DeprecatedAction":
            found[name]["no_effect"] = "deprecated: parsed and dropped"
        for action in group:
            if "Const" in action["action"] and action is not own:
                extra = action["options"][0].removeprefix("--")
                found[extra] = {"name": extra, "kind": "bare", "sets": f"{name}={action['const'] or ''}"}
    return found


def merge(versions: list[str], dumps: dict[str, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Rows over all versions, each with the span in which it is true."""
    rows: list[dict[str, Any]] = []
    names = dict.fromkeys(n for v in reversed(versions) for n in dumps[v])
    for name in names:
        current: dict[str, Any] | None = None
        for i, version in enumerate(versions):
            found = dumps[version].get(name)
            if current is not None and found == current["row"]:
                current["until"] = version
                continue
            current = None if found is None else {"row": found, "since": version, "until": version, "first": i}
            if current is not None:
                rows.append(current)
    return [_spanned(r, versions) for r in rows]


def _spanned(entry: dict[str, Any], versions: list[str]) -> dict[str, Any]:
    span = {}
    if entry["first"] > 0:
        span["since"] = entry["since"]
    if entry["until"] != versions[-1]:
        span["until"] = entry["until"]
    return {**entry["row"], **span}


def main() -> None:
    """Read the dumps named on the command line and write the table."""
    engine, out, *pairs = sys.argv[1:]
    dumps = {v: rows_of(json.loads(Path(p).read_text())) for v, p in (pair.split("=", 1) for pair in pairs)}
    versions = list(dumps)
    rows = merge(versions, dumps)
    head = f'{{"engine": "{engine}", "versions": {json.dumps(versions)},\n "flags": [\n'
    Path(out).write_text(head + ",\n".join("  " + json.dumps(r) for r in rows) + "\n]}\n")
    print(f"{len(rows)} rows over {len(versions)} versions")


if __name__ == "__main__":
    main()
