"""The effect as it is served: that of the verdict, and the one that was measured after it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class AfterDecision:
    """The units that were exposed after a decision, while both arms were still served.

    Attributes:
        state: `running`; `final` at its planned end; `stopped` where an arm was gone before.
        begins_at: The first block after the deciding look.
        ends_at: Its planned end.
        effect: The effect that it gives; None before its first look.
    """

    state: str
    begins_at: datetime
    ends_at: datetime
    effect: Mapping[str, Any] | None

    def document(self) -> dict[str, Any]:
        """Returns it as a member of the served effect."""
        return {
            "state": self.state,
            "begins_at": _text(self.begins_at),
            "ends_at": _text(self.ends_at),
            **(_NOTHING if self.effect is None else self.effect),
        }


_NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(("estimate", "standard_error", "interval", "relative")),
    **dict.fromkeys(("value_per_day", "value_interval")),
    "basis": "after_decision",
    "units": 0,
    "final": False,
    "as_of": None,
}


def served_effect(effect: Mapping[str, Any], after: AfterDecision | None) -> dict[str, Any]:
    """Returns the number to train on: after a decision the fresh one, once it is final.

    Before its planned end the fresh estimate is a number to watch: an experiment that is stopped on
    good news would show a lucky one.

    Args:
        effect: The effect of the evidence document.
        after: The units after the decision; None where the experiment is open or ended otherwise.
    """
    if after is None:
        return {**effect, "after_decision": None}
    document = after.document()
    best = effect
    if document["final"] and document["estimate"] is not None:
        best = {name: document[name] for name in effect}
    return {**best, "after_decision": document}


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
