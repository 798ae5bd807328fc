"""The causes of a lift that is not the change's."""

from enum import StrEnum


class Cause(StrEnum):
    """The cause of a lift that is not the change's."""

    SAMPLE_RATIO = "sample_ratio"
    CROSSOVER = "crossover"
    LATENESS = "lateness"
    INTERACTION = "interaction"
    AFTER_WINDOW = "after_window"
    OTHER_CURRENCY = "other_currency"
    NO_VALUE = "no_value"


# The units that they spoilt stay in the sums: only a new experiment helps.
PERMANENT = (Cause.SAMPLE_RATIO, Cause.CROSSOVER, Cause.LATENESS)
# The reasons for which a mean leaves outcomes of its units out.
LEFT_OUT = (Cause.OTHER_CURRENCY, Cause.NO_VALUE)
