"""Before exposure: whether outcomes come before the exposure more often in either arm."""

from domain.cause import Cause
from stats.counts.closed_cells import ClosedCells
from stats.gates.companions.companion import CompanionGate, lone_outcomes
from stats.looks.series import Companion, Series


class BeforeExposure(CompanionGate):
    """Outcomes come before the exposure more often in the arm whose rate that makes look lower.

    Read of all units: whether the unit's only outcome came before its exposure. Where all events
    expose there are none: the outcome itself exposes. An answer that is the same with these
    outcomes counted is not held back.
    """

    cause = role = alone = Cause.BEFORE_EXPOSURE
    member = "before_exposure_e"
    title = "As many outcomes precede the exposure in both arms"
    why = "outcomes come before the exposure more often in the arm with the lower rate"
    step = (
        "Outcomes before the event that exposes do not count: register the change without"
        " `routes`, so that the first event of a session exposes it, and send a tested flag with"
        " every event; or mend the clock of that arm's page."
    )

    def uncounted(self, series: Series, companion: Companion) -> ClosedCells:
        """The units, and of them those whose only outcome the target does not count."""
        return lone_outcomes(series.target, companion.cells)
