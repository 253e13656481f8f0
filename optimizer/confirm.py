"""The confirm phase: the best candidates against the baseline in fresh, interleaved restarts, until there is a verdict.

Decides who is confirmed and what is written down of each look; the statistics are `bench.verdict`. What is explored
never proves anything: only restarts of this phase are evidence. With several hosts each confirms the same candidates
against its own baseline, and a candidate has won when it has won on every one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from optimizer import evidence, several
from optimizer.bench import soak, verdict
from optimizer.bench.base import Outcome, VerdictResult
from optimizer.bench.confirm import Confirmation, relevant
from optimizer.bench.judging import BASELINE, Restart, carried_by_one, prompt_ratios
from optimizer.engines.base import Blame
from optimizer.evidence import Evidence
from optimizer.finalists import SELF_TEST, Finalist, agreed, broken_limits
from optimizer.run import StudyRun
from optimizer.run_trial import Proposal
from storage import events, verdicts
from storage.records import TrialRecord, VerdictRecord

Attempt = Callable[[StudyRun, Proposal], TrialRecord]
SOAK = "soak:"
"""Prefix of the arm that holds a winner under load; it is no evidence for or against its speed."""
LEAST_FIRST = (Outcome.WORSE, Outcome.NO_SIGNIFICANT_WIN, Outcome.UNDECIDED, Outcome.WIN)
NOTHING_FASTER = "nothing that was explored is faster than home, keeps the limits and answers as home does"


def confirm(run: StudyRun, attempt: Attempt) -> None:
    """Confirm the finalists on this host; the last host to end stores the verdict. Resumes from what is recorded."""
    run.lease.check()
    run.update(phase="confirm")
    run.say("study", phase="confirm")
    finalists = agreed(run)
    if not finalists or run.spec.budget.confirm_restarts < 2:
        conclude(run, finalists, [])
        return
    while True:
        run.lease.check()
        out = excluded(run, finalists)
        seen = evidence.read(run)
        restarts = restarts_on(run, seen)
        step = look(run, finalists, seen, restarts, out)
        record_look(run, step, restarts)
        if step.next_arm is not None:
            start_arm(run, attempt, finalists, step.next_arm)
            continue
        steps = last_looks(run, finalists, out)
        if steps is None:
            return  # the last host to end judges
        winner = winner_of(finalists, steps, excluded(run, finalists))  # others may have excluded one meanwhile
        if winner is None or not soak_is_due(run, winner.key):
            conclude(run, finalists, steps)
            return
        start_arm(run, attempt, finalists, SOAK + winner.key)


def last_looks(run: StudyRun, finalists: Sequence[Finalist], out: Mapping[str, str]) -> list[Confirmation] | None:
    """Look at every host once none will add to the evidence; None when another one will, and judges then.

    A host that may adopt the winner waits for the others.
    """
    while True:
        steps = looks(run, finalists, out)
        if not several.at_work_elsewhere(run, [s.next_arm is not None for s in steps]):
            return steps
        if run.spec.on_finish != "adopt" or not several.working(run):
            return None
        several.wait(run)


def looks(run: StudyRun, finalists: Sequence[Finalist], out: Mapping[str, str]) -> list[Confirmation]:
    """Look at the restarts of every host of the study, its own one first."""
    seen = evidence.read(run)
    on_each = [seen.on(name) for name in several.hosts(run)]
    return [look(run, finalists, on_host, restarts_on(run, on_host), out) for on_host in on_each]


def look(
    run: StudyRun,
    finalists: Sequence[Finalist],
    seen: Evidence,
    restarts: Sequence[dict[str, Any]],
    out: Mapping[str, str],
) -> Confirmation:
    """Look at the restarts of one host."""
    return verdict.plan_confirmation(
        [p.name for p in run.workload.prompts],
        [f.key for f in finalists],
        [Restart(r["arm"], r["tok_s"]) for r in restarts],
        alpha=run.spec.alpha,
        min_effect=run.spec.min_effect,
        max_restarts=run.spec.budget.confirm_restarts,
        given_up=set(out),
        earlier=evidence.baseline_restarts(run, seen),
    )


def start_arm(run: StudyRun, attempt: Attempt, finalists: Sequence[Finalist], arm: str) -> None:
    """One more fresh restart of an arm."""
    soaked = arm.startswith(SOAK)
    params = next((f.params for f in finalists if f.key == arm.removeprefix(SOAK)), {})
    as_home = arm in {BASELINE, SELF_TEST}
    soak_s = run.spec.budget.soak_s if soaked else 0.0
    attempt(run, Proposal("confirm", arm, dict(params), as_home=as_home, soak_s=soak_s))


def soak_is_due(run: StudyRun, key: str) -> bool:
    """Say whether a winner must still be held under load before it counts."""
    done = any(t.arm == SOAK + key and t.state != "interrupted" for t in evidence.read(run).trials)
    return run.spec.budget.soak_s > 0 and not run.spec.self_test and not done


def restarts_on(run: StudyRun, seen: Evidence) -> list[dict[str, Any]]:
    """Return the complete restarts of this phase on a host, in order: trial, arm, tok/s by prompt."""
    found = []
    for trial in seen.complete("confirm"):
        tok_s = evidence.blocks_of(run, trial)
        if tok_s is not None and not trial.arm.startswith(SOAK):
            found.append({"trial": trial.number, "arm": trial.arm, "tok_s": tok_s})
    return found


def excluded(run: StudyRun, finalists: Sequence[Finalist]) -> dict[str, str]:
    """Return the finalists that cannot win any more, with the reason: died, wrong output, a limit missed."""
    found: dict[str, str] = {}
    keys = {f.key for f in finalists}
    seen = evidence.read(run)
    for trial in seen.trials:
        key = trial.arm.removeprefix(SOAK)
        if trial.kind != "confirm" or key not in keys:
            continue
        failure = trial.failure or {}
        if trial.state == "infeasible" or (trial.state == "interrupted" and failure.get("blame") == Blame.ENGINE):
            found[key] = f"it failed when it was started again: {failure.get('summary', '')}"
        elif trial.output_check is not None and not trial.output_check["ok"]:
            found[key] = "suspect_output: " + "; ".join(trial.output_check["problems"])
        elif trial.state == "complete" and (broken := broken_limits(run, seen.on(trial.host), trial.metrics)):
            found[key] = "; ".join(broken)
        elif trial.arm.startswith(SOAK) and (tired := lost_under_load(run, key, trial)):
            found[key] = tired
    return found


def lost_under_load(run: StudyRun, key: str, soaked: TrialRecord) -> str:
    """Say so when the speed that a winner lost while it was held under load is more than it had won; else nothing."""
    first, last = soaked.metrics.get("soak_first_tok_s", 0.0), soaked.metrics.get("soak_last_tok_s", 0.0)
    with run.db.read() as conn:
        looks_at_it = [v for v in verdicts.for_study(conn, run.study.id) if v.candidate_key == key]
    gains = [v.ratio for v in looks_at_it if v.pairs.get("host") == soaked.host]
    if not gains or first <= 0 or last >= (1 - soak.SLOWER_SHARE) * first or gains[-1] * last > first:
        return ""
    return f"it is {gains[-1] - 1:+.1%} against home when fresh, and lost {1 - last / first:.1%} under load"


def record_look(run: StudyRun, step: Confirmation, restarts: Sequence[dict[str, Any]]) -> None:
    """Write one look at this host's evidence, with the restarts that it used."""
    now = run.clock.now()
    seen = {r["arm"] for r in restarts}
    with run.db.write() as conn:
        for key, result in step.results.items():
            if not {key, BASELINE} <= seen:
                continue
            verdicts.add(
                conn,
                VerdictRecord(
                    study_id=run.study.id,
                    candidate_key=key,
                    outcome=str(result.outcome),
                    ratio=result.ratio,
                    ci_low=result.ci_low,
                    ci_high=result.ci_high,
                    restarts=result.restarts,
                    pairs={"host": run.host.name, "restarts": [r for r in restarts if r["arm"] in {key, BASELINE}]},
                    at=now,
                ),
            )
            events.append(conn, run.study.id, "verdict", {"candidate": key, "host": run.host.name, **told(result)}, now)


def winner_of(finalists: Sequence[Finalist], steps: Sequence[Confirmation], out: Mapping[str, str]) -> Finalist | None:
    """Return the best finalist that has won on every host. No correction of alpha: each host had to be convinced."""
    results = joint_results(steps)
    left = [f for f in finalists if f.key not in out and f.key in results]
    won = [f for f in left if results[f.key].outcome is Outcome.WIN]
    return max(won, key=lambda f: results[f.key].ratio, default=None)


def joint_results(steps: Sequence[Confirmation]) -> dict[str, VerdictResult]:
    """Return for each candidate the result of the host that speaks most against it."""
    keys = steps[0].results if steps else {}
    return {
        key: min((s.results[key] for s in steps), key=lambda r: (LEAST_FIRST.index(r.outcome), r.ratio)) for key in keys
    }


def conclude(run: StudyRun, finalists: Sequence[Finalist], steps: Sequence[Confirmation]) -> None:
    """Store the verdict: the best proven finalist, or why there is none. `steps` are the last looks of all hosts."""
    out = excluded(run, finalists)
    document: dict[str, Any] = {"finalists": [asdict(f) for f in finalists], "excluded": out, "alpha": run.spec.alpha}
    results, winner = joint_results(steps), winner_of(finalists, steps, out)
    if winner is not None:
        document |= told(results[winner.key]) | {"candidate_key": winner.key, "params": winner.params}
        ratios = by_prompt(run, winner.key)
        document |= {"by_prompt": ratios, "caveats": caveats(run, ratios)}
        document["lossy"] = list(run.engine.lossy_flags(run.spec.candidate_config(winner.params, searched(run))))
    else:
        document |= without_winner(finalists, results, out)
    judged = document.get("candidate_key")
    if len(steps) > 1 and judged is not None:
        told_by = zip(several.hosts(run), steps, strict=True)
        document["hosts"] = {name: told(step.results[judged]) for name, step in told_by}
    drifted = evidence.baseline_drift(run)
    if drifted is not None:
        document["drift"] = asdict(drifted)
    best = winner or (finalists[0] if finalists else None)
    document |= explained(run, best)
    run.update(verdict=document, best_trial=best.trial if best else None)
    run.say("verdict_final", **{k: v for k, v in document.items() if k != "finalists"})


def explained(run: StudyRun, best: Finalist | None) -> dict[str, Any]:
    """Say what the search learnt: `importance` of each flag by output, and of the best its `changes`.

    The latter are what each changed flag brought, flags that do nothing and values at an edge of the space. With
    several levels of concurrency, the best at each as well.
    """
    home = {n: v for n, v in run.spec.baseline_config().items() if n in run.search.space.names}
    found: dict[str, Any] = {"importance": run.search.importance()}
    if best is not None:
        found["changes"] = asdict(run.search.explain(best.params, home))
    if len(run.workload.concurrency) > 1:
        found["best_by_level"] = {
            str(level): {"params": ranked.params, "mean_tok_s": ranked.mean}
            for level in run.workload.concurrency
            if (ranked := run.search.best_at_level(level, run.workload.concurrency)) is not None
        }
    return found


def by_prompt(run: StudyRun, key: str) -> dict[str, float]:
    """Return a candidate's ratio to the baseline on each prompt, over the restarts that judged it."""
    runs = [Restart(r["arm"], r["tok_s"]) for r in restarts_on(run, evidence.read(run)) if r["arm"] in {key, BASELINE}]
    return prompt_ratios([p.name for p in run.workload.prompts], relevant(runs, key))


def caveats(run: StudyRun, ratios: Mapping[str, float]) -> list[str]:
    """Return what the owner of a win must know: one prompt makes it, or the host drifted meanwhile."""
    drifted = evidence.baseline_drift(run)
    found = [carried_by_one(ratios, run.spec.min_effect), drifted.text if drifted is not None else ""]
    return [text for text in found if text]


def searched(run: StudyRun) -> set[str]:
    """Names of the searched parameters."""
    return set(run.search.space.names)


def told(result: VerdictResult) -> dict[str, Any]:
    """Return a result as plain JSON; an open end of the interval is None."""
    values = asdict(result) | {"outcome": str(result.outcome)}
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def without_winner(
    finalists: Sequence[Finalist], results: Mapping[str, VerdictResult], out: Mapping[str, str]
) -> dict[str, Any]:
    """Say why nothing has won: nothing was faster, all were excluded, or what the evidence on the best one says."""
    if not finalists:
        return {"outcome": str(Outcome.NO_SIGNIFICANT_WIN), "reason": NOTHING_FASTER}
    left = [f for f in finalists if f.key in results and f.key not in out]
    if not left:
        reason = "; ".join(out.values()) or "there was no budget to confirm anything"
        return {"outcome": str(Outcome.NO_SIGNIFICANT_WIN if out else Outcome.UNDECIDED), "reason": reason}
    best = max(left, key=lambda f: results[f.key].ratio)
    return told(results[best.key]) | {"candidate_key": best.key, "params": best.params}
