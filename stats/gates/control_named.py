"""Whether a single value of a flag can be control's, where its registration names none."""

import numpy as np

from domain.cause import Cause
from stats.gates.gate import Gate, Reading, no_reading
from stats.looks.series import Series
from stats.looks.trace import StageLooks


class ControlNamed(Gate):
    """Units carry several values besides treatment's, each of them at least 1 % of all.

    Who is not in a test has a value too, or none: such units are no control. The statistic is the
    number of values that may be control's. It holds as long as there are several.
    """

    cause = Cause.CONTROL_UNNAMED
    member = "control_values"
    title = "A single value of the flag can be control's"
    why = "several values of the flag may be control's"
    step = (
        "Register the change again and name the value to compare with: `control` beside"
        " `treatment` (--flag-control VALUE). That is another experiment: it counts from then on."
    )

    def is_asked(self, series: Series) -> bool:
        """Whether control is not named, and another value than treatment's came."""
        return series.traits is not None and bool(series.traits.own_values)

    def reading(self, looks: StageLooks) -> Reading:
        """The number of values that may be control's, at all looks of a stage."""
        if looks.strata.control is None:
            return no_reading(looks)
        values = looks.strata.control.counts(looks.trace.at)
        return Reading(statistic=np.where(values > 0, values, np.nan), alarm=values > 1)

    def text(self, value: float) -> str:
        """The number of values as people read it."""
        return f"{value:.0f} value{'' if value == 1 else 's'}"
