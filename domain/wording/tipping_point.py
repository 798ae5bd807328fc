"""The tipping point in words: a word on the faults that no check sees."""

from domain.evidence.document import Evidence


def tipping_sentence(evidence: Evidence) -> str | None:
    """Returns how many invented sessions would explain the lift, and how many would go unnoticed.

    Returns:
        None where nothing was compared, where there is no difference or it is not the change's
        alone, and of a metric that is a mean.
    """
    point = evidence.tipping_point
    if point is None or not point.sessions or evidence.gates.interacting_because:
        return None
    unit = evidence.policy.unit
    many = f"{point.sessions:,} fake {unit}s that convert would explain this difference"
    if point.unseen is None:
        return f"{many}, and no check would notice: no share is declared"
    return f"{many}; this check misses up to about {point.unseen:,} in an arm"
