"""Vouched outcomes in words: how many of the outcomes cannot have been invented."""

from domain.evidence.counts import Vouched


def vouched_sentence(vouched: Vouched | None) -> str | None:
    """Returns how many outcomes came with the write key or signed; None without outcomes.

    Args:
        vouched: Those of the outcomes; None where nothing was read.
    """
    if vouched is None or not vouched.of:
        return None
    if not vouched.conversions:
        return "all outcomes came with the public key, which anybody can send with"
    known = f"{vouched.conversions:,} of {vouched.of:,}"
    return f"{known} outcomes came with the write key, or signed"
