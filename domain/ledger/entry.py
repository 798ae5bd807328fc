"""An entry of the ledger: an experiment that was judged, and its claim."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An experiment that had a look within the ledger's days.

    Attributes:
        metric: Its target metric.
        treatment_commit: The commit that was tested; None of a flag, and before the deploy.
        title: The first line of that commit's message; None where its deploy has none.
        actor: Who, or which agent, asked for it or made the change; None where that is not known.
        verdict: As its contract has it.
        at: Its last look; of a decided experiment the look that decided.
        level: The level that it was tested at: of a change without an effect the chance of any
            answer.
        log_e: Of a keep the logarithm of its e-value, follow-up included; None of the others.
        followed: The state of its follow-up; None where there is none.
        claimed: Of a keep the lift of its contract, relative to control.
        estimated: Of a keep the effect at the decision, relative.
        measured: The effect after the decision, relative; None before the follow-up is final.
        measured_error: Its standard error.
    """

    experiment_id: str
    metric: str
    treatment_commit: str | None
    title: str | None
    actor: str | None
    verdict: str
    at: datetime
    level: float
    log_e: float | None
    followed: str | None
    claimed: float | None
    estimated: float | None
    measured: float | None
    measured_error: float | None

    def document(self, *, stands: str) -> Mapping[str, Any]:
        """Returns a keep as a line of the served ledger."""
        return {
            "experiment_id": self.experiment_id,
            "metric": self.metric,
            "treatment_commit": self.treatment_commit,
            "title": self.title,
            "actor": self.actor,
            "decided_at": self.at,
            "stands": stands,
            "log_e": self.log_e,
            "claimed": self.claimed,
            "at_decision": self.estimated,
            "after_decision": self.measured,
        }
