"""For which engine version and GPUs the results of a study hold: the first host that is opened decides.

Decides when results may be mixed: not over engine versions or kinds of GPUs, neither of two hosts nor of one host that
was upgraded between two nights. A new driver is told, since the baseline is measured again and shows what it changes.
"""

from __future__ import annotations

from dataclasses import asdict

from optimizer.engines.base import Hardware
from optimizer.errors import BadInput, Problem
from optimizer.spec import StudySpec
from storage import shares, studies, trials
from storage.engine import Database
from storage.records import StudyRecord


def settle(
    db: Database, study: StudyRecord, host: str, version: str | None, hardware: Hardware
) -> tuple[StudyRecord, str]:
    """Keep what a host is, or compare it with what the study was measured on; returns the row and a warning, if any.

    Raises:
        BadInput: the host has other GPUs or another engine version.
    """
    with db.write() as conn:
        known = studies.get(conn, study.id)
        several = len(shares.for_study(conn, study.id)) > 1
        if known.hardware and (several or trials.next_number(conn, study.id) > 0):
            problems = differences(known, version, hardware)
            if problems:
                raise BadInput(
                    f"{host} is not of the kind that the results of study {known.name} are of",
                    problems,
                    remedy="stop this study and create a new one: what was found is where it looks first",
                )
        now = studies.update(conn, study.id, engine_version=version, hardware=asdict(hardware))
    before = (known.hardware or {}).get("driver_version") or hardware.driver_version
    if before == hardware.driver_version or several:
        return now, ""
    return now, f"the driver of {host} is {hardware.driver_version or 'not known'} now, it was {before}"


def pinned(spec: StudySpec, installed: str | None) -> str:
    """Say so when the specification's `engine_version` is not the installed one: the rules of another are used."""
    if spec.engine_version in {None, installed} or installed is None:
        return ""
    return f"{installed} is installed, and the rules of {spec.engine_version} are used (`engine_version` says so)"


def differences(study: StudyRecord, version: str | None, hardware: Hardware) -> list[Problem]:
    """Return in what a host differs from what a study was measured on."""
    known = study.hardware or {}
    pairs = {
        "engine_version": (version, study.engine_version),
        "gpus": (_gpus(hardware.gpu_count, hardware.gpu_name), _gpus(known.get("gpu_count"), known.get("gpu_name"))),
    }
    return [
        Problem(name, f"is {here or 'not known'}, and was {there or 'not known'} for the study's results")
        for name, (here, there) in pairs.items()
        if here != there
    ]


def _gpus(count: int | None, name: str | None) -> str:
    return f"{count} x {name}" if count else "none"
