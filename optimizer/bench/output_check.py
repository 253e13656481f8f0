"""Whether a candidate's outputs are still the baseline's: greedy texts compared, and signs of degeneration.

Decides what is tolerable: two starts of one unchanged server already differ in places (order of additions, cache
state), so the baseline's agreement with itself is the measure. Which settings are lossy by design the engine knows.
"""

from __future__ import annotations

import json
import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Protocol

from optimizer.bench.base import OutputCheck, RequestSample
from optimizer.engines.base import Config

KEPT_SHARE = 0.5
"""Least agreement as a share of the baseline's own. Other kernels, batch shapes and speculation round differently; one
token that flips early in an answer costs most of its prefix although the text stays good, so half must be allowed."""
LEAST_TOLERANCE = 0.02
REPETITION_RATIO = 0.15
"""A text that compresses below this is stuck in a loop; prose is near 0.5, tables and code near 0.3."""
REPETITION_CHARS = 200
"""Shorter texts are too short to judge by compression."""
FOREIGN_SCRIPT_SHARE = 0.3
SHORT_SHARE = 0.1
"""An answer that ends by itself below this share of the baseline's length broke off."""

LENGTH_SHARE = 0.25
"""Answers that are, all together, so much shorter or longer than any of the baseline's restarts are other work: their
speed cannot be compared. Texts that part late end near each other."""
COUNT_SHARE = 0.15
"""Characters per counted token may differ by so much; the same tokenizer on such texts stays within a few per cent. A
server that counts drafts or padding as output would look faster than it is."""
ENOUGH_TOKENS = 50
"""With fewer tokens of an answer, neither its length nor its letters say anything."""

Key = tuple[str, int, int]


class KnowsLossyFlags(Protocol):
    """The part of an engine that is used here."""

    def lossy_flags(self, config: Config) -> tuple[str, ...]:
        """Settings known to change outputs by design."""


def check(
    candidate: Sequence[RequestSample],
    baselines: Sequence[Sequence[RequestSample]],
    *,
    engine: KnowsLossyFlags,
    config: Config,
) -> OutputCheck:
    """Compare one candidate's samples with those of the baseline's restarts (same workload, temperature 0).

    `ok` is False (`suspect_output`) when the agreement is below the tolerance or an answer shows a sign of
    degeneration that the baseline's answer to the same prompt does not show.
    """
    texts = _texts(candidate)
    references = [_texts(samples) for samples in baselines]
    self_agreement = _mean_or_one([_agreement(a, b) for a, b in combinations(references, 2)])
    agreement = _mean_or_one([_agreement(texts, reference) for reference in references])
    tolerance = max(LEAST_TOLERANCE, KEPT_SHARE * self_agreement)
    problems = []
    if agreement < tolerance:
        problems.append(
            f"answers share {agreement:.0%} of their beginning with the baseline's; "
            f"the baseline's restarts share {self_agreement:.0%}, at least {tolerance:.0%} is needed"
        )
    problems += [*_amount(candidate, baselines), *_degeneration(candidate, baselines)]
    return OutputCheck(
        ok=not problems,
        agreement=agreement,
        self_agreement=self_agreement,
        tolerance=tolerance,
        problems=tuple(problems),
        lossy=engine.lossy_flags(config),
    )


def common_prefix_share(first: str, second: str) -> float:
    """Return the length of the common beginning over the length of the longer text, 0..1; 1 for two empty texts."""
    longer = max(len(first), len(second))
    if longer == 0:
        return 1.0
    shared = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        shared += 1
    return shared / longer


def _texts(samples: Sequence[RequestSample]) -> dict[Key, str]:
    return {(s.prompt, s.concurrency, s.repeat): s.text for s in samples if s.ok}


def _agreement(first: Mapping[Key, str], second: Mapping[Key, str]) -> float | None:
    """Return the mean share of common beginning over the requests that both answered, None when there is none."""
    shares = [common_prefix_share(first[key], second[key]) for key in first if key in second]
    return sum(shares) / len(shares) if shares else None


def _mean_or_one(values: Sequence[float | None]) -> float:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else 1.0


def _amount(candidate: Sequence[RequestSample], baselines: Sequence[Sequence[RequestSample]]) -> list[str]:
    """Compare how much was answered, and how it was counted, over the requests that everybody answered."""
    runs = [{(s.prompt, s.concurrency, s.repeat): s for s in run if s.ok} for run in (candidate, *baselines)]
    shared = set.intersection(*map(set, runs)) if baselines else set()
    tokens = [sum(run[key].output_tokens for key in shared) for run in runs]
    letters = [sum(len(run[key].text) for key in shared) for run in runs]
    if max(tokens) < ENOUGH_TOKENS or not all(tokens) or not all(letters):
        return []
    found = []
    if more := _beyond(tokens[0], tokens[1:], LENGTH_SHARE):
        found.append(f"the answers have {more:+.0%} tokens against the baseline's: their speed is that of other work")
    density = [n / count for n, count in zip(letters, tokens, strict=True)]
    if more := _beyond(density[0], density[1:], COUNT_SHARE):
        found.append(f"a token stands for {more:+.0%} text against the baseline's: the server counts otherwise")
    return found


def _beyond(value: float, usual: Sequence[float], share: float) -> float:
    """Return by what share a value is outside of the usual range, 0.0 when it is within `share` of it."""
    low, high = min(usual), max(usual)
    outside = value / high - 1 if value > high else value / low - 1 if value < low else 0.0
    return outside if abs(outside) > share else 0.0


def _degeneration(candidate: Sequence[RequestSample], baselines: Sequence[Sequence[RequestSample]]) -> list[str]:
    """Name each sign that a candidate's answer shows and no baseline answer to the same prompt does."""
    normal: dict[str, set[str]] = {}
    lengths: dict[str, int] = {}
    for sample in (s for samples in baselines for s in samples if s.ok):
        normal.setdefault(sample.prompt, set()).update(signs(sample))
        lengths[sample.prompt] = max(lengths.get(sample.prompt, 0), len(sample.text))
    problems = []
    for sample in candidate:
        if not sample.ok:
            if sample.error and sample.error.startswith("empty"):
                problems.append(f"{sample.prompt}: the answer is empty")
            continue
        found = signs(sample)
        if sample.finish_reason == "stop" and len(sample.text) < SHORT_SHARE * lengths.get(sample.prompt, 0):
            found.add("breaks off after a few words")
        problems += [f"{sample.prompt}: the answer {sign}" for sign in sorted(found - normal.get(sample.prompt, set()))]
    return list(dict.fromkeys(problems))


def signs(sample: RequestSample) -> set[str]:
    """Return the signs of degeneration that one answer shows, each as the end of a sentence."""
    text = sample.text
    found = set()
    if not text.strip():
        return {"is blank"}
    raw = text.encode()
    if len(raw) >= REPETITION_CHARS and len(zlib.compress(raw, 6)) / len(raw) < REPETITION_RATIO:
        found.add("repeats itself without end")
    letters = [c for c in text if c.isalpha()]
    foreign = sum(not unicodedata.name(c, "LATIN").startswith("LATIN") for c in letters)
    if letters and foreign / len(letters) > FOREIGN_SCRIPT_SHARE:
        found.add("is mostly in another script")
    if "\ufffd" in text:
        found.add("has broken characters")
    if sample.kind == "json" and sample.finish_reason == "stop" and not holds_json(text):
        found.add("is not valid JSON")
    return found


def holds_json(text: str) -> bool:
    """Say whether a text is JSON, or holds one JSON document in a code fence or between its first and last bracket."""
    starts = [i for i in (text.find("["), text.find("{")) if i >= 0]
    end = max(text.rfind("]"), text.rfind("}"))
    try:
        json.loads(text)
    except ValueError:
        pass
    else:
        return True
    if not starts or end < 0:
        return False
    try:
        json.loads(text[min(starts) : end + 1])
    except ValueError:
        return False
    return True
