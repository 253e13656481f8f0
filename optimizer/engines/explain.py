"""Chooses the cause of a failure: the first in time that explains the rest, in the stage where it happened.

Decides between events, leaves reading them to `evidence` and every text to the catalogues. The last line is rarely
the cause: servers kill themselves, ranks notice each other's death, wrappers point upwards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from optimizer.engines import memory
from optimizer.engines.base import Blame, Explanation, FailureContext
from optimizer.engines.causes import BY_STAGE, STAGE_WORDS, Catalogue, Stage, Tier
from optimizer.engines.evidence import Event, Walk, walk
from optimizer.engines.kernel_log import from_kernel_log
from optimizer.engines.policy import NONE, POLICIES
from optimizer.engines.words import fill

NEIGHBOURHOOD = 300
"""Lines within which a decisive text explains an earlier, weaker one: the tracebacks of one failure on all ranks."""
EVIDENCE_LINES = 6
EVIDENCE_WIDTH = 400
SUMMARY_WIDTH = 300
CONFIDENCE = {
    Tier.DECISIVE: 0.95,
    Tier.CAUSE: 0.85,
    Tier.GENERAL: 0.6,
    Tier.VICTIM: 0.5,
    Tier.FALLBACK: 0.4,
    Tier.SYMPTOM: 0.35,
}
WAITED = 3
"""Lines of waiting without anything else that make a start that hangs."""
KILLED = frozenset({137, -9, 9})
CLEAN_EXITS = frozenset({None, 0, 143, -15, 130, -2})
"""Exit codes that show no failure by themselves: none known, success, ended by a signal that asks."""
CRASH_EXITS = {139: "segmentation fault", -11: "segmentation fault", 134: "abort", -6: "abort", 135: "bus error"}


@dataclass(frozen=True)
class Finding:
    """The chosen cause before it is put into words."""

    label: str
    event: Event | None
    confidence: float
    summary: str = ""
    remedy: str = ""


def explain(catalogue: Catalogue, text: str, context: FailureContext) -> Explanation:
    """Explain a failure; label `none` when nothing shows that there was one. Never raises."""
    found = walk(catalogue, text, context.config)
    events = [event for event in found.events if not _survived(found, event, context)]
    finding = _choose(catalogue, found, events, context)
    return _in_words(catalogue, found, finding, events, context)


def _dead(found: Walk, context: FailureContext) -> bool:
    """Say whether anything beside weak lines shows that the server ended against its will."""
    if context.exit_code not in CLEAN_EXITS or context.signal not in (None, 15, 2):
        return True
    return any(map(_is_death, found.events))


def _is_death(event: Event) -> bool:
    return event.cause.fatal or (event.cause.tier is Tier.SYMPTOM and not event.weak)


def _survived(found: Walk, event: Event, context: FailureContext) -> bool:
    """Say whether the server went on after an event as if nothing had happened."""
    if event.cause.fatal:
        return any(at > event.index and stage is Stage.READY for at, stage, _ in found.stages_at)
    if any(at > event.index for at in found.ready_at):
        return True
    tier = event.cause.tier
    if found.stopped_at is not None and event.index > found.stopped_at and tier <= Tier.GENERAL:
        return True
    deaths = any(_is_death(e) and e.index >= event.index for e in found.events)
    ended = deaths or context.exit_code not in CLEAN_EXITS or context.signal not in (None, 15, 2)
    if event.weak and not _dead(found, context):
        return True
    if any(at > event.index for at in found.alive_at) and not ended:
        return True
    return tier in (Tier.GENERAL, Tier.FALLBACK, Tier.VICTIM) and found.reached >= Stage.READY and not ended


def _choose(catalogue: Catalogue, found: Walk, events: list[Event], context: FailureContext) -> Finding | None:
    kernel = from_kernel_log(context.kernel_log)
    best = _first_cause([event for event in events if not event.weak]) or _first_cause(events)
    if kernel is not None and (best is None or best.cause.tier < Tier.CAUSE or best.cause.label == kernel.label):
        return Finding(kernel.label, best, 0.95, kernel.summary, kernel.remedy)
    if best is not None and not (best.cause.tier is Tier.SYMPTOM and context.exit_code in CRASH_EXITS):
        return _settle(found, best, context)
    return _from_context(found, best, context)


_ROUNDS = (
    (Tier.CAUSE, Tier.DECISIVE),
    (Tier.GENERAL, Tier.FALLBACK),
    (Tier.VICTIM,),
    (Tier.SYMPTOM,),
)


def _first_cause(events: list[Event]) -> Event | None:
    """Return the first cause in time, unless a decisive one stands near it."""
    for tiers in _ROUNDS:
        wanted = [e for e in events if e.cause.tier in tiers]
        if not wanted:
            continue
        first = min(wanted, key=lambda e: (e.when, e.index)) if all(e.when for e in wanted) else wanted[0]
        if first.cause.tier is Tier.FALLBACK:
            victims = [e for e in events if e.cause.tier is Tier.VICTIM and e.index <= first.index]
            first = victims[0] if victims else first
        near = [e for e in wanted if e.cause.tier is Tier.DECISIVE and abs(e.index - first.index) <= NEIGHBOURHOOD]
        return near[0] if near else first
    return None


def _settle(found: Walk, event: Event, context: FailureContext) -> Finding:
    confidence = event.cause.confidence or CONFIDENCE[event.cause.tier]
    if event.cause.label != BY_STAGE:
        return Finding(event.cause.label, event, confidence)
    stage = memory.stage_of(found, event, context.phase)
    foreign = memory.held_by_others(found, event)
    label = "gpu_busy_leftover" if foreign else memory.label_of(stage)
    if label == "oom_weights" and stage is Stage.UNKNOWN:
        confidence = 0.5
    summary = foreign or f"{POLICIES[label].summary} ({STAGE_WORDS[stage]})"
    return Finding(label, event, confidence, summary)


def _from_context(found: Walk, best: Event | None, context: FailureContext) -> Finding | None:
    """Explain without a cause in the log, from how the process ended and how far it had come."""
    code = context.exit_code
    stage = STAGE_WORDS[found.reached]
    if code in CRASH_EXITS or context.signal in (11, 6, 7):
        how = CRASH_EXITS.get(code or 0, f"signal {context.signal}")
        return Finding("scheduler_crash", best, 0.6, f"the server crashed ({how}) {stage}")
    if code in KILLED or context.signal == 9:
        summary = f"the server was killed (signal 9) {stage}; usually the kernel, for lack of host memory"
        return Finding("killed_host_oom", best, 0.45, summary)
    if code == 2:
        return Finding("invalid_flag", best, 0.5, "the server left with code 2, as for a flag that it refuses")
    if code not in CLEAN_EXITS:
        return Finding("unknown", best, 0.3, f"the server left with code {code} {stage}, and the log does not say why")
    if found.traceback and not found.ready_at:
        return Finding("unknown", best, 0.3, f"the server failed {stage}; the log ends before it says why")
    if found.waiting >= WAITED and not found.ready_at and not found.alive_at:
        return Finding("health_never_ready", best, 0.5, f"somebody waited for the server in vain; last seen {stage}")
    if context.phase == "startup" and found.reached < Stage.READY and code is None:
        return Finding("health_never_ready", best, 0.5, f"the server was not ready in time; last seen {stage}")
    return None


def _in_words(
    catalogue: Catalogue, found: Walk, finding: Finding | None, events: list[Event], context: FailureContext
) -> Explanation:
    if finding is None:
        return Explanation(NONE, catalogue.engine, POLICIES[NONE].summary, "", (), Blame.ENGINE, confidence=0.8)
    policy = POLICIES[finding.label]
    cause = finding.event.cause if finding.event and finding.event.cause.label in (finding.label, BY_STAGE) else None
    groups = finding.event.groups if finding.event else {}
    special = catalogue.oom.get(memory.LABEL_STAGE.get(finding.label, Stage.UNKNOWN), "")
    summary = finding.summary or (cause.summary if cause else "") or policy.summary
    remedy = finding.remedy or (cause.remedy if cause else "") or special or policy.remedy
    return Explanation(
        label=finding.label,
        engine=catalogue.engine,
        summary=fill(summary, catalogue.words, context.config, groups)[:SUMMARY_WIDTH],
        remedy=fill(remedy, catalogue.words, context.config, groups),
        evidence=_evidence(found, finding.event, events),
        blame=cause.blame if cause and cause.blame else policy.blame,
        retry=cause.retry if cause and cause.retry is not None else policy.retry,
        stop_study=_stops(found, finding, cause.stop_study if cause else None),
        confidence=finding.confidence,
    )


_OF_THE_DRAFT = re.compile(r"draft|eagle|speculative-|spec_decode|/speculative/")
_MODEL_LABELS = frozenset({"model_not_found", "unsupported_model"})


def _stops(found: Walk, finding: Finding, told: bool | None) -> bool:
    """Say whether the study must stop; a draft that cannot be used is one choice of many, not the end of a study."""
    stop = POLICIES[finding.label].stop_study if told is None else told
    if not stop or finding.label not in _MODEL_LABELS or finding.event is None:
        return stop
    index = finding.event.index
    near = "\n".join(line.text[:300] for line in found.lines[max(0, index - 25) : index + 4]).lower()
    return _OF_THE_DRAFT.search(near) is None


def _evidence(found: Walk, event: Event | None, events: list[Event]) -> tuple[str, ...]:
    """Quote the decisive line, the frame above it, what names the same cause elsewhere, and how it ended."""
    if event is None:
        return tuple(line.raw[:EVIDENCE_WIDTH] for line in found.lines[-3:])
    chosen = {event.index}
    for back in range(event.index - 1, max(-1, event.index - 8), -1):
        if found.lines[back].text.lstrip().startswith('File "'):
            chosen.add(back)
            break
    same = [e.index for e in events if e.cause is event.cause][: EVIDENCE_LINES - 3]
    chosen.update(same)
    if events:
        chosen.add(events[-1].index)
    ordered = sorted(chosen)[: EVIDENCE_LINES - 1]
    if event.index not in ordered:
        ordered = sorted([*ordered[:-1], event.index])
    return tuple(found.lines[index].raw.strip()[:EVIDENCE_WIDTH] for index in ordered)
