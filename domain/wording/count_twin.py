"""The count twin in words: the number that a keep waits for beside its guardrails."""

import math

from domain.evidence.results import CountTwin

# So many standard errors of a share are no chance of the draw.
_OFF = 3.0


def awaited_count(twin: CountTwin | None) -> str | None:
    """Returns the number that a keep waits for; None where it waits for none."""
    if twin is None or twin.holds:
        return None
    return "the number of conversions shows the gain too, not their rate alone"


def router_sentence(twin: CountTwin | None) -> str | None:
    """Returns by how much the router misses the declared share; None where it does not."""
    if twin is None or twin.holds or not twin.units:
        return None
    error = math.sqrt(twin.declared * (1 - twin.declared) / twin.units)
    if abs(twin.served - twin.declared) <= _OFF * error:
        return None
    return (
        f"The router serves {100 * twin.served:.3g} % where {100 * twin.declared:.3g} % is"
        " declared: correct its weights, or declare what it serves."
    )
