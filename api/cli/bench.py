"""`ratchet bench`: the load client alone, against any server with a streaming API."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from api.cli.output import print_json, say
from optimizer.errors import BadInput, Problem, RatchetError

if TYPE_CHECKING:
    from optimizer.bench.base import MeasuredEngine, Measurement, Workload

API_KEY_VARIABLE = "RATCHET_BENCH_KEY"
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1", "/generate", "/completion")
DEFAULT_TIMEOUT_S = 1800.0


@click.command()
@click.argument("url")
@click.option("--model", default="", help="Model name to ask for; default: what the server serves.")
@click.option("--engine", default="", help="sglang, vllm or llamacpp; default: what the server says it is.")
@click.option(
    "--workload", default="five-prompts", help="five-prompts, random-tokens, a JSONL file, or a YAML/JSON text."
)
@click.option("--concurrency", default="", help="Levels, e.g. 1,8,64.")
@click.option("--repeats", type=int, help="How often each prompt is asked.")
@click.option("--max-tokens", type=int, help="Most tokens of one answer.")
@click.option(
    "--api", type=click.Choice(["chat", "completions", "generate", "completion"]), help="Dialect of the requests."
)
@click.option("--cache", type=click.Choice(["cold", "warm"]), help="Whether prompts may hit the prefix cache.")
@click.option("--rate", type=float, help="Requests per second (open loop) instead of closed streams.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_TIMEOUT_S,
    show_default=True,
    help="Most seconds for everything.",
)
@click.option("--samples", is_flag=True, help="With --json: every request with its token times.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def bench(
    url: str,
    model: str,
    engine: str,
    workload: str,
    concurrency: str,
    repeats: int | None,
    max_tokens: int | None,
    api: str | None,
    cache: str | None,
    rate: float | None,
    timeout: float,
    samples: bool,
    as_json: bool,
) -> None:
    """Measure a running server at URL (http://host:port) as its users see it.

    A key for the server is read from the environment variable RATCHET_BENCH_KEY.
    """
    from optimizer.bench.measure import measure
    from optimizer.bench.workload import from_spec
    from optimizer.clock import Deadline

    options = {
        "concurrency": _levels(concurrency),
        "repeats": repeats,
        "max_tokens": max_tokens,
        "api": api,
        "cache": cache,
        "arrival_rate_s": rate,
    }
    asked = from_spec(_section(workload) | {k: v for k, v in options.items() if v is not None})
    base = _base(url)
    headers = _headers()
    found, owner = _served(base, headers)
    name, speaker = model or found, _engine(engine, owner)
    say(f"measuring {base} ({speaker.name}, {name or 'default model'}): {asked.name}, {len(asked.prompts)} prompts")
    measurement = measure(
        base,
        engine=speaker,
        model=name,
        workload=asked,
        path="direct",
        deadline=Deadline.after(timeout),
        headers=headers,
        salt=f"{secrets.token_hex(4)}.",  # the server may have been measured before
    )
    if as_json:
        print_json(document(measurement, asked, base, name, speaker.name, samples=samples))
    else:
        from api.cli.bench_view import show

        show(measurement, asked)


def document(
    measurement: Measurement, workload: Workload, url: str, model: str, engine: str, *, samples: bool = False
) -> dict[str, Any]:
    """Return the JSON document of one measurement."""
    data = asdict(measurement)
    data.pop("samples")
    data |= {
        "schema": 1,
        "url": url,
        "model": model,
        "engine": engine,
        "workload": workload.name,
        "levels": list(workload.concurrency),
    }
    if samples:
        data["samples"] = [asdict(s) for s in measurement.samples]
    return data


def _levels(text: str) -> list[int] | None:
    if not text:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(
            "bad --concurrency", [Problem("--concurrency", "must be whole numbers", text, "for example 1,8,64")]
        ) from None


def _section(text: str) -> dict[str, Any]:
    """Return the workload section that `--workload` stands for."""
    from optimizer.bench.workload import PRESETS
    from optimizer.spec import load_yaml

    if text in PRESETS:
        return {"preset": text}
    if text.lstrip().startswith("{"):
        return _fields(load_yaml(text, "the workload"))
    path = Path(text).expanduser()
    if path.suffix in (".yaml", ".yml"):
        from optimizer.spec import read_text

        return _fields(load_yaml(read_text(path, "the workload"), "the workload"))
    if path.suffix in (".jsonl", ".ndjson") or path.exists():
        return {"jsonl": str(path)}
    return {"preset": text}


def _fields(data: Any) -> dict[str, Any]:
    """Return the fields of a workload, given bare or as the section of a specification."""
    section = data.get("workload", data) if isinstance(data, dict) else data
    if not isinstance(section, dict):
        hint = "for example {preset: five-prompts, repeats: 3}"
        raise BadInput("bad workload", [Problem("--workload", "must be a mapping of fields", section, hint)])
    return dict(section)


def _headers() -> dict[str, str]:
    """Return the header with the server's key, if there is one."""
    key = os.environ.get(API_KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise BadInput("bad key", [Problem(API_KEY_VARIABLE, "has characters that no key can have")])
    return {"Authorization": f"Bearer {key}"} if key else {}


def _base(url: str) -> str:
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        good = False
    if not good or parts.query or parts.fragment or parts.username is not None:
        raise BadInput(
            "bad URL",
            [Problem("URL", "must begin with http:// or https://, then name a host", url, "http://host:8000")],
        )
    url = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
    for path in PATHS:
        url = url.removesuffix(path)
    return url


def _engine(name: str, owner: str) -> MeasuredEngine:
    """Return the engine that was named, else the one that the server says it is, else a plain server."""
    from optimizer.bench.plain import PlainServer
    from optimizer.engines.registry import ENGINE_NAMES, find_engine

    if name:
        return find_engine(name)
    return find_engine(owner) if owner in ENGINE_NAMES else PlainServer()


def _served(url: str, headers: dict[str, str]) -> tuple[str, str]:
    """Return the first model that the server lists and who it says owns it, empty when it lists none."""
    from optimizer.bench import scrape

    status, text = scrape.request(url, "GET", "/v1/models", headers=headers)
    if status == 0:
        raise RatchetError(f"no server answers at {url}: {text}", remedy="start it first, or check the address")
    if status != 200:
        return "", ""
    try:
        first = json.loads(text)["data"][0]
        return str(first["id"]), str(first.get("owned_by", ""))
    except (ValueError, KeyError, TypeError, IndexError):
        return "", ""
