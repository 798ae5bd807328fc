"""Vouched outcomes: whether an answer holds on the events alone that cannot be invented."""

from collections.abc import Sequence

import numpy as np

from domain.evidence.counts import Vouched
from stats.counts.timeline import Stream, timeline
from stats.gates.companions.channels import VOUCHED
from stats.looks.stratification import Stratification
from stats.looks.trace import Trace, stream_at
from stats.sequential.mixture import Mixture, e_value, precisions


def vouched_outcomes(read: Sequence[tuple[Stratification, Trace]]) -> list[Vouched | None]:
    """The vouched outcomes of each experiment at a look; None where that is not read.

    The test is the target's, in the same cells of the same units. Traces are of the look alone;
    many experiments at once cost little more than a single experiment.
    """
    streams = {
        number: stream
        for number, (strata, now) in enumerate(read)
        if (stream := _vouched(strata, int(now.at[0]))) is not None
    }
    every: list[Vouched | None] = [None] * len(read)
    if not streams:
        return every
    line = timeline(list(streams.values()))
    first, stop = line.first[:-1], line.first[1:]
    last = np.where(stop > first, stop - 1, -1)
    totals, conversions = line.totals.gathered(last), np.append(line.compared.conversions, 0)[last]
    policies = [read[number][0].series.policy for number in streams]
    mixture = Mixture(
        rho=precisions([policy.rho for policy in policies])
        * np.append(line.factor, 1.0)[last][:, None],
        log_threshold=np.array([policy.log_threshold for policy in policies]),
    )
    log_e = mixture.log_e(totals.S, totals.V0)
    for own, number in enumerate(streams):
        now = read[number][1]
        same_side = totals.S[own] * now.totals.S[0] > 0
        every[number] = Vouched(
            conversions=int(conversions[own]),
            of=int(now.compared.conversions[0]),
            e_value=float(e_value(log_e[own : own + 1])[0]),
            holds=bool(log_e[own] >= mixture.log_threshold[own] and same_side),
        )
    return every


def _vouched(strata: Stratification, look: int) -> Stream | None:
    stage = strata.stage_at(look)
    companion = stage.series.companions.get(VOUCHED)
    return companion and stream_at(stage.series, stage.blocks, companion, look)
