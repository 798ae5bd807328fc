"""The causes of a lift that is not the change's."""

from enum import StrEnum


class Cause(StrEnum):
    """The cause of a lift that is not the change's."""

    SAMPLE_RATIO = "sample_ratio"
    CROSSOVER = "crossover"
    LATENESS = "lateness"
    INTERACTION = "interaction"
    AFTER_WINDOW = "after_window"


# The units that they spoilt stay in the sums: only a new experiment helps.
PERMANENT = (Cause.SAMPLE_RATIO, Cause.CROSSOVER, Cause.LATENESS)
