"""How public clients are called for the same load; the reader installs them elsewhere, to be thrown away."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Command = Callable[[Path, str, str, int, int, int, Path], list[str]]
"""(bin directory, URL, script, streams, requests, tokens, scratch directory) -> command"""

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
"""Both clients want a tokenizer to make prompts; a word list will do and needs no download."""


@dataclass(frozen=True)
class Other:
    """One public client."""

    name: str
    command: Command


def tokenizer(place: Path) -> Path:
    """Make the tokenizer with the client's own libraries, once."""
    made = place.parent / "word-tokenizer"
    if not made.exists():
        subprocess.run([str(place / "python"), "-c", TOKENIZER, str(made)], check=True, capture_output=True)
    return made


def guidellm(place: Path, url: str, script: str, streams: int, requests: int, tokens: int, room: Path) -> list[str]:
    """guidellm: concurrent streams, chat completions."""
    data = {"prompt_tokens": 64, "output_tokens": tokens}
    return [
        str(place / "guidellm"), "benchmark", "run", "--target", url, "--model", script,
        "--processor", str(tokenizer(place)),
        "--profile", "concurrent", "--rate", str(streams), "--max-requests", str(requests), "--data", json.dumps(data),
        "--request-type", "chat_completions", "--output-path", str(room), "--outputs", "json", "--disable-console",
    ]  # fmt: skip


def aiperf(place: Path, url: str, script: str, streams: int, requests: int, tokens: int, room: Path) -> list[str]:
    """aiperf: concurrent streams, chat completions."""
    return [
        str(place / "aiperf"), "profile", "--model", script, "--url", url, "--endpoint-type", "chat", "--streaming",
        "--tokenizer", str(tokenizer(place)), "--concurrency", str(streams), "--request-count", str(requests),
        "--synthetic-input-tokens-mean", "64", "--output-tokens-mean", str(tokens), "--ui", "none",
        "--artifact-dir", str(room),
    ]  # fmt: skip


CLIENTS = {c.name: c for c in (Other("guidellm", guidellm), Other("aiperf", aiperf))}
