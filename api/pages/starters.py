"""What the new-study form starts from: one specification per engine, ready but for host and paths."""

from __future__ import annotations

import yaml

from storage.records import HostRecord, StudyRecord

_TAIL = """workload: {preset: five-prompts, max_tokens: 256}
budget: {trials: 40, hours: 8, confirm_restarts: 10}
on_finish: restore        # restore the original server, or adopt what is proven faster
"""
STARTERS: tuple[tuple[str, str, str], ...] = (
    (
        "sglang",
        "SGLang, EAGLE-3",
        """name: sglang-eagle3
host: HOST
engine: sglang
launch:
  command: [python3, -m, sglang.launch_server]
  flags:
    model-path: /path/to/model
    tp-size: 8
    port: 8000
    speculative-algorithm: EAGLE3
    speculative-draft-model-path: /path/to/draft
    speculative-num-steps: 3
    speculative-eagle-topk: 1
    speculative-num-draft-tokens: 4
space:
  preset: eagle3
"""
        + _TAIL,
    ),
    (
        "vllm",
        "vLLM, n-gram",
        """name: vllm-ngram
host: HOST
engine: vllm
launch:
  command: [vllm, serve, /path/to/model]
  flags:
    tensor-parallel-size: 1
    port: 8000
space:
  preset: ngram
"""
        + _TAIL,
    ),
    (
        "llamacpp",
        "llama.cpp",
        """name: llamacpp-threads
host: HOST
engine: llamacpp
launch:
  command: [llama-server]
  flags:
    model: /path/to/model.gguf
    port: 8080
space:
  parameters:
    threads: {int: [1, 16]}
    batch-size: {choice: [256, 512, 1024, 2048]}
    flash-attn: {choice: ["on", "off"]}
"""
        + _TAIL,
    ),
)
HOST_STARTER = """name: gpu-box
connection: ssh
ssh: {alias: gpu-box}     # or hostname, port, user, identity_file
http: {reach: tunnel}
gpus: [0, 1, 2, 3]
takeover: true            # may stop the server found on the port, and puts it back
"""


def starters(hosts: list[HostRecord]) -> list[tuple[str, str, str]]:
    """Return (key, title, text), with the first registered host filled in."""
    host = hosts[0].name if hosts else "gpu-box"
    return [(key, title, text.replace("HOST", host, 1)) for key, title, text in STARTERS]


def from_study(study: StudyRecord) -> str:
    """Return a study's specification under a new name, without what is only default."""
    spec = {k: v for k, v in study.spec.items() if v not in (None, {}, [])}
    spec["name"] = f"{study.name}-2"[:100]
    return to_yaml(spec)


def to_yaml(document: object) -> str:
    """Write a document as a person would: in its own order, lists of scalars on one line."""
    return yaml.dump(document, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)
