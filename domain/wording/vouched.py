"""Vouched outcomes in words: how many of the outcomes cannot have been invented."""

from collections.abc import Mapping
from typing import Any


def vouched_sentence(document: Mapping[str, Any]) -> str | None:
    """Returns how many outcomes came with the write key or signed.

    Args:
        document: An evidence document; those of earlier releases don't say.

    Returns:
        None where there are no outcomes.
    """
    vouched = document.get("vouched")
    if vouched is None or not vouched["of"]:
        return None
    if not vouched["conversions"]:
        return "all outcomes came with the public key, which anybody can send with"
    known = f"{vouched['conversions']:,} of {vouched['of']:,}"
    return f"{known} outcomes came with the write key, or signed"
