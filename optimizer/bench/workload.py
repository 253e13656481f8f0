"""What is asked of a server: reads the `workload` section of a specification, whole, with every mistake told.

Decides the fields, the built-in workloads and the fingerprint. How requests are sent is `load.py`; which prompt text a
repeat really carries (salts against prefix caches) is `plan.py`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from optimizer.bench.base import Prompt, Workload
from optimizer.bench.fields import Reader
from optimizer.errors import BadInput

FIVE_PROMPTS = ("code", "prose", "reasoning", "json", "summary")
FIVE, RANDOM = PRESETS = ("five-prompts", "random-tokens")
APIS = ("chat", "completions", "generate", "completion")
DEFAULT_MAX_TOKENS = 256
NOT_IN_FINGERPRINT = frozenset(
    {"name", "fingerprint", "request_timeout_s", "stall_timeout_s", "max_error_share", "slo_ttft_ms", "slo_itl_ms"}
)
FINGERPRINT_VERSION = 1
"""Raised when the meaning of a field changes, so that old results are never compared with new ones."""

JSON_LIST_SCHEMA: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": "string"},
            "city": {"type": "string"},
            "weight_kg": {"type": "number"},
            "fragile": {"type": "boolean"},
        },
        "required": ["id", "name", "city", "weight_kg", "fragile"],
    },
}


def from_spec(data: Mapping[str, Any]) -> Workload:
    """Build a workload from the `workload` section of a specification (see docs/reference/workloads.md).

    Raises:
        BadInput: carries every problem with its path, value and hint.
    """
    reader = Reader(data)
    shape = _shape(reader)
    prompts, name = _prompts(reader, shape)
    reader.refuse_unknown()
    reader.check(
        shape["arrival_rate_s"] is None or shape["waves"] == 1, "waves", "cannot drain while requests keep arriving"
    )
    reader.check(shape["api"] == "chat" or not any(p.json_schema for p in prompts), "api", _SCHEMA_NEEDS_CHAT)
    if reader.problems:
        count = len(reader.problems)
        raise BadInput(f"the workload has {count} problem{'s' if count > 1 else ''}", reader.problems)
    bare = Workload(name=name, prompts=prompts, **{k: v for k, v in shape.items() if k in _WORKLOAD_FIELDS})
    return dataclasses.replace(bare, fingerprint=fingerprint(bare))


_WORKLOAD_FIELDS = frozenset(f.name for f in dataclasses.fields(Workload))
_SCHEMA_NEEDS_CHAT = "requests with a JSON schema go through the chat API"


def _shape(reader: Reader) -> dict[str, Any]:
    """Read every field that does not depend on where the prompts come from."""
    slo = Reader(reader.mapping("slo"), prefix="slo.", problems=reader.problems)
    shape = {
        "max_tokens": reader.integer("max_tokens", DEFAULT_MAX_TOKENS, low=1, high=1_000_000),
        "concurrency": reader.integers("concurrency", (1,), low=1, high=100_000),
        "repeats": reader.integer("repeats", 1, low=1, high=10_000),
        "warmup_requests": reader.integer("warmup_requests", 1, low=0, high=10_000),
        "temperature": reader.number("temperature", 0.0, low=0.0, high=5.0),
        "cache": reader.choice("cache", "cold", ("cold", "warm")),
        "arrival_rate_s": reader.optional_number("arrival_rate_s", above=0.0),
        "api": reader.choice("api", "chat", APIS),
        "ignore_eos": reader.boolean("ignore_eos", reader.given("preset") == "random-tokens"),
        "requests_per_level": reader.optional_integer("requests_per_level", low=1),
        "waves": reader.integer("waves", 1, low=1, high=1_000),
        "request_timeout_s": reader.number("request_timeout_s", 300.0, above=0.0),
        "stall_timeout_s": reader.number("stall_timeout_s", 60.0, above=0.0),
        "max_error_share": reader.number("max_error_share", 0.2, low=0.0, high=1.0),
        "slo_ttft_ms": slo.optional_number("ttft_ms", above=0.0),
        "slo_itl_ms": slo.optional_number("itl_ms", above=0.0),
        "seed": reader.integer("seed", 0, low=0),
    }
    slo.refuse_unknown()
    return shape


def _prompts(reader: Reader, shape: Mapping[str, Any]) -> tuple[tuple[Prompt, ...], str]:
    sources = [k for k in ("preset", "jsonl", "prompts") if reader.given(k) is not None]
    if len(sources) > 1:
        reader.add(sources[1], f"is given beside {sources[0]}", hint="choose one of preset, jsonl, prompts")
    source = sources[0] if sources else "preset"
    of_preset = reader.given("preset") or FIVE if source == "preset" else ""
    for name, owner in {"json_schema": FIVE, "input_tokens": RANDOM, "prompt_count": RANDOM}.items():
        if reader.given(name) is not None and of_preset in (*PRESETS, ""):
            reader.check(of_preset == owner, name, f"says nothing here: it belongs to preset {owner}")
    if source == "jsonl":
        return _from_jsonl(reader, shape["max_tokens"])
    if source == "prompts":
        return _from_list(reader, reader.given("prompts"), shape["max_tokens"], "prompts"), "inline"
    if reader.choice("preset", FIVE, PRESETS) == RANDOM:
        return _random_tokens(reader, shape), RANDOM
    return _five_prompts(shape["max_tokens"], structured=reader.boolean("json_schema", False)), FIVE


def _five_prompts(max_tokens: int, *, structured: bool) -> tuple[Prompt, ...]:
    return tuple(
        Prompt(
            name,
            name,
            ({"role": "user", "content": prompt_text(name)},),
            max_tokens,
            JSON_LIST_SCHEMA if structured and name == "json" else None,
        )
        for name in FIVE_PROMPTS
    )


def prompt_text(name: str) -> str:
    """Return one of our own prompt texts (`prompts/NAME.md`)."""
    return resources.files("optimizer.bench").joinpath("prompts", f"{name}.md").read_text("utf-8").strip()


def _random_tokens(reader: Reader, shape: Mapping[str, Any]) -> tuple[Prompt, ...]:
    """Return prompts of random everyday words, about `input_tokens` long (one common English word is about a token)."""
    length = reader.integer("input_tokens", 256, low=1, high=1_000_000)
    count = reader.integer("prompt_count", 16, low=1, high=10_000)
    rng = random.Random(shape["seed"])
    words = sorted(
        {w.strip(".,;:`'\"()?!").lower() for n in FIVE_PROMPTS for w in prompt_text(n).split() if w.isalpha()}
    )
    return tuple(
        Prompt(
            f"random-{i}",
            "random",
            ({"role": "user", "content": " ".join(rng.choices(words, k=length))},),
            shape["max_tokens"],
        )
        for i in range(count)
    )


def _from_jsonl(reader: Reader, max_tokens: int) -> tuple[tuple[Prompt, ...], str]:
    path = Path(str(reader.given("jsonl"))).expanduser()
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        reader.add(
            "jsonl", f"cannot be read: {reason}", str(path), "give the path of a file with one JSON object a line"
        )
        return (), path.name
    rows: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            reader.add(f"jsonl line {number}", f"is not JSON: {error.msg} at column {error.colno}")
    return _from_list(reader, rows, max_tokens, "jsonl line "), path.name


def _from_list(reader: Reader, rows: Any, max_tokens: int, path: str) -> tuple[Prompt, ...]:
    if not isinstance(rows, list) or not rows:
        reader.add(path.strip(), "has no prompts", hint='give objects with "prompt" or "messages"')
        return ()
    prompts: list[Prompt] = []
    for index, row in enumerate(rows):
        where = f"{path}{index + 1}" if path.endswith(" ") else f"{path}[{index}]"
        prompt = _one_prompt(reader, row, index, max_tokens, where)
        if prompt is not None:
            prompts.append(prompt)
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.name in seen:
            reader.add(
                path.strip(), "two prompts have the same name", prompt.name, "names are the blocks of comparisons"
            )
        seen.add(prompt.name)
    return tuple(prompts)


def _one_prompt(reader: Reader, row: Any, index: int, max_tokens: int, where: str) -> Prompt | None:
    if not isinstance(row, Mapping):
        reader.add(where, "must be an object", type(row).__name__, 'for example {"prompt": "Say hello."}')
        return None
    line = Reader(row, prefix=f"{where}.", problems=reader.problems)
    line.claim("prompt", "messages", "json_schema")
    messages = _messages(row, line.add)
    schema = row.get("json_schema")
    kind = line.text("kind", "other" if schema is None else "json")
    tokens = line.integer("max_tokens", max_tokens, low=1, high=1_000_000)
    name = line.text("name", f"{kind}-{index + 1}")
    if schema is not None and not isinstance(schema, Mapping):
        line.add("json_schema", "must be an object", type(schema).__name__)
        schema = None
    line.refuse_unknown()
    return Prompt(name, kind, messages, tokens, dict(schema) if schema else None)


def _messages(row: Mapping[str, Any], add: Callable[..., None]) -> tuple[dict[str, str], ...]:
    text, messages = row.get("prompt"), row.get("messages")
    if (text is None) == (messages is None):
        add("prompt", "give either prompt or messages")
        return ()
    if text is not None:
        if not isinstance(text, str) or not text.strip():
            add("prompt", "must be a text that is not empty", text)
            return ()
        return ({"role": "user", "content": text},)
    good = isinstance(messages, list) and bool(messages)
    for message in messages if good and isinstance(messages, list) else []:
        good = (
            good and isinstance(message, Mapping) and all(isinstance(message.get(k), str) for k in ("role", "content"))
        )
    if not good or not isinstance(messages, list):
        add("messages", "must be a list of objects with role and content", hint='[{"role": "user", "content": "..."}]')
        return ()
    return tuple({"role": str(m["role"]), "content": str(m["content"])} for m in messages)


def fingerprint(workload: Workload) -> str:
    """Return a 16-digit hash of everything that is asked; results with other fingerprints are never compared."""
    fields = {k: v for k, v in dataclasses.asdict(workload).items() if k not in NOT_IN_FINGERPRINT}
    text = json.dumps([FINGERPRINT_VERSION, fields], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
