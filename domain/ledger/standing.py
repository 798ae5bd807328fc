"""Which keeps stand: the e-BH procedure over the experiments of the ledger.

Wang & Ramdas, False discovery rate control with e-values, JRSS B 84 (2022). It holds however the
experiments depend on each other.
"""

import math
from collections.abc import Mapping, Sequence

from domain.ledger.entry import Entry, Standing
from domain.policy import FALSE_DISCOVERY_RATE


def standing(entries: Sequence[Entry]) -> Mapping[str, Standing]:
    """Returns of each keep whether it stands: `yes`, `not_yet` or `no`.

    A keep stands among the k with the largest e-values where the least of these is at least the
    number of judged experiments, divided by 0.1·k. An experiment without a keep counts with the
    e-value 0, so that the rate is that of the keeps alone. A test that stopped when it crossed
    stands just above its threshold: without more units the answer is not known yet, never no.
    """
    values = sorted((_log_e(entry) for entry in entries if entry.verdict == "keep"), reverse=True)
    least = math.inf
    for count, value in enumerate(values, start=1):
        if value >= math.log(len(entries) / (FALSE_DISCOVERY_RATE * count)):
            least = value
    return {
        entry.experiment_id: _stands(entry, least) for entry in entries if entry.verdict == "keep"
    }


def _log_e(entry: Entry) -> float:
    return -math.inf if entry.log_e is None else entry.log_e


def _stands(entry: Entry, least: float) -> Standing:
    if _log_e(entry) >= least:
        return "yes"
    return "no" if entry.followed == "final" else "not_yet"
