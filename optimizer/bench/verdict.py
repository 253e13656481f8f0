"""The verdict as others import it: `judge` one candidate, `plan_confirmation` over several."""

from optimizer.bench.confirm import Confirmation, plan_confirmation
from optimizer.bench.judging import BASELINE, CANDIDATE, STOP, Restart, judge

__all__ = ["BASELINE", "CANDIDATE", "STOP", "Confirmation", "Restart", "judge", "plan_confirmation"]
