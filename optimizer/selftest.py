"""The A/A test of a specification: the same study with the baseline as its only candidate.

Decides how a specification becomes its own self-test; the restarts, the statistics and the host are those of any study.
"""

from __future__ import annotations

from optimizer.spec import SpaceSection, StudySpec


def self_test_spec(spec: StudySpec) -> StudySpec:
    """Return the self-test of a specification: nothing is explored, the baseline is confirmed against itself."""
    return spec.model_copy(
        update={
            "name": f"{spec.name[:90]}-self-test",
            "self_test": True,
            "space": SpaceSection(),
            "on_finish": "restore",
            "budget": spec.budget.model_copy(update={"confirm_restarts": max(8, spec.budget.confirm_restarts)}),
        }
    )
