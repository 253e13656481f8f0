"""How public clients are called for the same load, and what they say of it; the reader installs them elsewhere.

python3 -m venv /tmp/guidellm && /tmp/guidellm/bin/pip install guidellm
python3 -m venv /tmp/aiperf && /tmp/aiperf/bin/pip install aiperf
python3 -m venv /tmp/vllm && /tmp/vllm/bin/pip install vllm   (any build: only its client runs)
python -m benchmarks client --beside guidellm=/tmp/guidellm/bin aiperf=/tmp/aiperf/bin vllm=/tmp/vllm/bin
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MODEL = "scripted"
"""No script of its own: the server's default one counts, since some command lines take no commas in a model's name."""
Command = Callable[[Path, str, int, int, int, Path], list[str]]
"""(bin directory, URL, streams, requests, tokens, scratch directory) -> command"""

TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = {w: i for i, w in enumerate(["[UNK]", "[EOS]", *(f"w{i}" for i in range(2000))])}
inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
made = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", eos_token="[EOS]", pad_token="[EOS]")
made.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
made.save_pretrained(sys.argv[1])
"""
"""The clients want a tokenizer to make prompts; a word list will do and needs no download."""


@dataclass(frozen=True)
class Seen:
    """One request as a client reports it."""

    tok_s: float
    """Decode speed: tokens after the first over the time after the first."""
    first_s: float


@dataclass(frozen=True)
class Other:
    """One public client: how it is called, and how its own report is read."""

    name: str
    command: Command
    read: Callable[[Path], list[Seen]]
    env: dict[str, str] = field(default_factory=dict)


def tokenizer(place: Path) -> Path:
    """Make the tokenizer with the client's own libraries, once."""
    made = place.parent / "word-tokenizer"
    if not made.exists():
        subprocess.run([str(place / "python"), "-c", TOKENIZER, str(made)], check=True, capture_output=True)
    return made


def guidellm(place: Path, url: str, streams: int, requests: int, tokens: int, room: Path) -> list[str]:
    """guidellm: concurrent streams, chat completions."""
    return [
        str(place / "guidellm"), "run", "--disable-console",
        "--backend", f"kind=openai_http,target={url},model={MODEL}",
        "--profile", f"kind=concurrent,streams={streams}", "--constraint", f"kind=max_requests,count={requests}",
        "--tokenizer", f"kind=huggingface_auto,model={tokenizer(place)}",
        "--data", f"kind=synthetic_text,prompt_tokens=64,output_tokens={tokens}",
        "--output", f"kind=json,path={room / 'out.json'}",
    ]  # fmt: skip


def read_guidellm(room: Path) -> list[Seen]:
    """Read guidellm's report."""
    report = json.loads((room / "out.json").read_text("utf-8"))
    rows = [r for b in report["benchmarks"] for r in b["requests"]["successful"] if r["inter_token_latency_ms"]]
    return [Seen(1e3 / r["inter_token_latency_ms"], r["time_to_first_token_ms"] / 1e3) for r in rows]


def aiperf(place: Path, url: str, streams: int, requests: int, tokens: int, room: Path) -> list[str]:
    """aiperf: concurrent streams, chat completions."""
    return [
        str(place / "aiperf"), "profile", "--model", MODEL, "--url", url, "--endpoint-type", "chat", "--streaming",
        "--tokenizer", str(tokenizer(place)), "--concurrency", str(streams), "--request-count", str(requests),
        "--synthetic-input-tokens-mean", "64", "--output-tokens-mean", str(tokens),
        "--extra-inputs", "ignore_eos:true", "--ui", "none", "--artifact-dir", str(room),
    ]  # fmt: skip


def read_aiperf(room: Path) -> list[Seen]:
    """Read aiperf's report, one JSON object a line."""
    lines = (room / "profile_export.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line)["metrics"] for line in lines]
    return [
        Seen(1e3 / r["inter_token_latency"]["value"], r["time_to_first_token"]["value"] / 1e3)
        for r in rows
        if "inter_token_latency" in r
    ]


def vllm(place: Path, url: str, streams: int, requests: int, tokens: int, room: Path) -> list[str]:
    """`vllm bench serve`: concurrent streams, chat completions."""
    return [
        str(place / "vllm"), "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions",
        "--base-url", url, "--model", MODEL, "--tokenizer", str(tokenizer(place)), "--dataset-name", "random",
        "--random-input-len", "64", "--random-output-len", str(tokens), "--ignore-eos", "--disable-tqdm",
        "--num-prompts", str(requests), "--max-concurrency", str(streams), "--ready-check-timeout-sec", "0",
        "--save-result", "--save-detailed", "--result-dir", str(room), "--result-filename", "out.json",
    ]  # fmt: skip


def read_vllm(room: Path) -> list[Seen]:
    """Read the report of `vllm bench serve`."""
    report = json.loads((room / "out.json").read_text("utf-8"))
    both = zip(report["ttfts"], report["itls"], strict=True)
    return [Seen(len(itls) / sum(itls), first_s) for first_s, itls in both if itls]


CLIENTS = {
    c.name: c
    for c in (
        Other("guidellm", guidellm, read_guidellm, {"GUIDELLM__MAX_WORKER_PROCESSES": "1", "HF_HUB_OFFLINE": "1"}),
        Other("aiperf", aiperf, read_aiperf),
        Other("vllm", vllm, read_vllm, {"HF_HUB_OFFLINE": "1"}),
    )
}
"""guidellm with one worker process, which costs it least on a small machine."""
