"""Failures without a message: speculation that is not running or never right, a GPU left aside, degenerate outputs.

Decides from what a healthy-looking server did; leaves dead servers to `explain` and small differences of outputs to
the output check. Careful on purpose: a slow configuration is a result, not a failure.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from optimizer.engines.base import Config, Explanation, SpeculationSample
from optimizer.engines.policy import NONE, POLICIES

ENOUGH_DRAFTED = 64
"""Drafted tokens below which a share says nothing."""
USELESS_LENGTH = 1.15
"""Accept length of a draft model below which the draft does not fit its target (drafting costs more than it gives)."""
USELESS_RATE = 0.02
"""Share of n-gram drafts accepted below which they only cost time."""
NOTHING_ACCEPTED = 0.05
"""Share of drafted tokens below which a whole log shows a drafter that does not fit, whatever its type."""

_DRAFTING = re.compile(r"accept|draft|specul", re.IGNORECASE)
"""Without one of these words a log says nothing of speculation; throughput need not be read."""
_OFF = ("", "none", "null", "false", "{}")
_NGRAM = re.compile(r"n-?gram|suffix|lookup|spec-default", re.IGNORECASE)
_SWITCHED_OFF = re.compile(
    r"failed to initialize speculative decoding|speculative decoding (?:is )?(?:not supported|disabled)|"
    r"no implementations? specified for speculative|draft model is not compatible, disabling|"
    r"speculative decoding (?:is )?(?:not active|inactive|will not be used)|"
    r"disabling speculative decoding|speculat\w+ .{0,40}(?:is|was|will be) (?:disabled|ignored|turned off)",
    re.IGNORECASE,
)
_DRAFT_LOADED = re.compile(r"load\w*:? .{0,40}draft model '|loading draft model", re.IGNORECASE)
_CPU_FALLBACK = re.compile(
    r"ggml_cuda_init: failed to initialize|CUDA initialization: .{0,120}driver|running on UnspecifiedPlatform|"
    r"CUDA is not available.{0,60}(?:cpu|fall)|fall(?:ing)?[ -]?back to (?:the )?cpu\b|"
    r"Can't initialize NVML.{0,80}cpu",
    re.IGNORECASE,
)
_GPU_IGNORED = re.compile(r"no usable GPU found|gpu-layers option will be ignored", re.IGNORECASE)
_LAYERS = ("gpu-layers", "n-gpu-layers", "ngl")


def check(
    engine: str,
    config: Config,
    speculation: SpeculationSample,
    log_text: str,
    texts: Sequence[str] = (),
) -> Explanation | None:
    """Return what silently went wrong with a server that answers, or None.

    `config` holds the full launch flags, `speculation` the sample of the measured window, `texts` outputs of greedy
    requests. Never raises.
    """
    found = _device(engine, config, log_text) or _garbage(engine, texts)
    asked = _asked(engine, config)
    if found is None and asked:
        ngram = _NGRAM.search(" ".join(f"{flag}={value}" for flag, value in asked.items())) is not None
        found = _speculation(engine, config, speculation, log_text, ngram)
    return found


def _asked(engine: str, config: Config) -> dict[str, str]:
    """Return the given flags that ask for speculative decoding, whether or not they are enough for it."""
    asking: tuple[str, ...] = importlib.import_module(f"optimizer.engines.{engine}.speculation").ASKED_BY
    given = {flag: str(config[flag]).strip() for flag in asking if flag in config}
    return {flag: value for flag, value in given.items() if value.lower() not in _OFF}


def from_log(engine: str, log_text: str) -> Explanation | None:
    """Return low acceptance that a log shows by itself: drafts over the whole log, and practically none accepted."""
    if _DRAFTING.search(log_text) is None:
        return None
    telemetry = importlib.import_module(f"optimizer.engines.{engine}.telemetry")
    records = telemetry.read_log(log_text)
    off = _SWITCHED_OFF.search(log_text)
    drafted = sum(record.get("drafted", 0) for record in records)
    if off is not None and not drafted:
        return _explained("spec_inactive", engine, "", "", [_line_of(log_text, off)], 0.7)
    accepted = sum(record.get("accepted", 0) for record in records)
    if drafted >= ENOUGH_DRAFTED and accepted < NOTHING_ACCEPTED * drafted:
        lines = [f"{accepted} of {drafted} drafted tokens accepted"]
        return _explained("low_acceptance", engine, "", "", lines, 0.85)
    lengths = [r["accept_len"] for r in records if r.get("accept_len", 0.0) >= 1.0]
    if lengths and sum(lengths) / len(lengths) < USELESS_LENGTH:
        lines = [f"accept length {max(lengths)} at best over {len(lengths)} lines (1.0 = nothing accepted)"]
        return _explained("low_acceptance", engine, "", "", lines, 0.7)
    return _draft_unused(engine, log_text, records)


def or_silent(engine: str, log_text: str, found: Explanation, config: Config) -> Explanation:
    """Return what a log shows to have gone wrong quietly, where its loud lines show nothing, or only that it waited."""
    if found.label == NONE:
        return from_log(engine, log_text) or _device(engine, config, log_text) or found
    return (_device(engine, config, log_text) if found.label == "health_never_ready" else None) or found


def _draft_unused(engine: str, log_text: str, records: Sequence[Mapping[str, Any]]) -> Explanation | None:
    """Notice a draft model that was loaded and never asked for drafts (llama.cpp needs a type beside the model)."""
    loaded = _DRAFT_LOADED.search(log_text) if engine == "llamacpp" else None
    if loaded is None or any("drafted" in record for record in records):
        return None
    if sum(record.get("gen_tokens", 0) for record in records) < ENOUGH_DRAFTED:
        return None
    remedy = "give --spec-type (draft-simple, draft-eagle3, draft-mtp): -md alone does not switch speculation on"
    summary = "a draft model was loaded, but nothing was ever drafted"
    return _explained("spec_inactive", engine, summary, remedy, [_line_of(log_text, loaded)], 0.7)


def _speculation(
    engine: str, config: Config, sample: SpeculationSample, log_text: str, ngram: bool
) -> Explanation | None:
    """Judge the sample; drafts looked up in the text itself (`ngram`) may be few without a fault."""
    off = _SWITCHED_OFF.search(log_text)
    if off is not None and not sample.drafted_tokens:
        summary = "the server switched speculation off by itself and runs without it"
        return _explained("spec_inactive", engine, summary, "", [_line_of(log_text, off)], 0.9)
    if sample.drafted_tokens == 0 or (sample.drafted_tokens is None and sample.verify_steps == 0):
        return _nothing_drafted(engine, config, ngram)
    if sample.drafted_tokens is not None and sample.drafted_tokens < ENOUGH_DRAFTED:
        return None
    length, rate = sample.accept_len, sample.accept_rate
    if ngram:
        useless = rate is not None and rate < USELESS_RATE
    else:
        useless = length is not None and length < USELESS_LENGTH
    if not useless:
        return None
    said = f"accept length {length}, accept rate {rate}, {sample.drafted_tokens} drafted ({sample.definition})"
    summary = f"the draft is almost never accepted (accept length {length}, 1.0 = nothing)"
    return _explained("low_acceptance", engine, summary, _fitting_remedy(engine, config, ngram), [said], 0.8)


def _nothing_drafted(engine: str, config: Config, ngram: bool) -> Explanation:
    if ngram:
        remedy = (
            "shorten the n-gram that must match and the minimum draft, or accept that this workload repeats nothing"
        )
        summary = "the n-gram lookup found nothing to draft on this workload: the server ran as without speculation"
        return _explained("spec_inactive", engine, summary, remedy, [], 0.6)
    remedy = POLICIES["spec_inactive"].remedy
    if engine == "llamacpp" and "spec-type" not in config:
        remedy = "give --spec-type (draft-simple, draft-eagle3, draft-mtp): -md alone does not switch speculation on"
    return _explained("spec_inactive", engine, "speculation was asked for, but nothing was drafted", remedy, [], 0.9)


def _fitting_remedy(engine: str, config: Config, ngram: bool) -> str:
    if ngram:
        return "lengthen the n-gram that must match, or leave speculation off for this workload"
    algorithm = str(config.get("speculative-algorithm", "")).upper()
    draft = str(config.get("speculative-draft-model-path", config.get("speculative-draft-model", ""))).lower()
    if engine == "sglang" and algorithm in ("EAGLE", "NEXTN") and "eagle3" in draft.replace("-", "").replace("_", ""):
        return "the draft looks like an EAGLE3 head: use --speculative-algorithm EAGLE3"
    return "use a draft trained for exactly this target; other numbers of draft tokens cannot help"


def _device(engine: str, config: Config, log_text: str) -> Explanation | None:
    if str(config.get("device", "")).lower() == "cpu":
        return None
    found = _CPU_FALLBACK.search(log_text)
    if found is None and engine == "llamacpp":
        layers = next((str(config[flag]) for flag in _LAYERS if flag in config), "0")
        found = _GPU_IGNORED.search(log_text) if layers not in ("0", "auto") else None
    if found is None:
        return None
    summary = "the server runs on the CPU: it could not use the GPU"
    return _explained("driver_cuda_mismatch", engine, summary, "", [_line_of(log_text, found)], 0.85)


def _garbage(engine: str, texts: Sequence[str]) -> Explanation | None:
    bad = [text for text in texts if is_degenerate(text)]
    if len(bad) < 2 or 2 * len(bad) <= len(texts):
        return None
    summary = f"{len(bad)} of {len(texts)} outputs are one token over and over, or no text at all"
    return _explained("garbage_output", engine, summary, "", [bad[0][:120]], 0.8)


def is_degenerate(text: str) -> bool:
    """Say whether a text is one word, one character or broken characters over and over (extreme cases only)."""
    body = "".join(text.split())
    if len(body) < 24:
        return False
    if sum(char == "\ufffd" or (not char.isprintable()) for char in body) > 0.2 * len(body):
        return True
    if max(body.count(char) for char in set(body)) > 0.7 * len(body):
        return True
    words = text.split()
    return len(words) >= 12 and max(words.count(word) for word in set(words)) > 0.9 * len(words)


def _line_of(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    return text[start : end if end >= 0 else len(text)].strip()[:400]


def _explained(
    label: str, engine: str, summary: str, remedy: str, evidence: Sequence[str], confidence: float
) -> Explanation:
    policy = POLICIES[label]
    return Explanation(
        label,
        engine,
        summary or policy.summary,
        remedy or policy.remedy,
        tuple(evidence),
        policy.blame,
        policy.retry,
        policy.stop_study,
        confidence,
    )
