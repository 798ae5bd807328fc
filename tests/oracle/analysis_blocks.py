"""Analysis blocks, computed a second time by the clock (docs/statistics.md, 'Counts')."""

from dataclasses import dataclass

from domain.metric import DAY
from stats.looks.series import Series

HOUR = 3600


@dataclass(frozen=True, kw_only=True)
class Joined:
    """An analysis block of a stratum; `end` is None while it is open."""

    stratum: int
    begin: int
    end: int | None
    units: int


def joined(series: Series) -> list[Joined]:
    """Every analysis block of every stratum that had a unit, those without units too."""
    size, cells = series.policy.block_seconds, series.first_closed
    closes_after = size + series.shortest_window + series.policy.grace_seconds
    came = {
        (int(block), int(stratum)): int(n1 + n0)
        for block, stratum, n1, n0 in zip(
            cells.block, cells.stratum, cells.n1, cells.n0, strict=True
        )
        if block + closes_after <= series.as_of
    }
    return [
        each
        for stratum in sorted({stratum for _, stratum in came})
        for each in _of_stratum(series, stratum, came, closes_after)
    ]


def _of_stratum(
    series: Series, stratum: int, came: dict[tuple[int, int], int], closes_after: int
) -> list[Joined]:
    size = series.policy.block_seconds
    moments = [*series.cuts, *(epoch.start for epoch in series.allocation or ())]
    cuts = {moment - moment % size for moment in moments}
    result: list[Joined] = []
    begin = block = series.begin
    own = everybody = 0
    while block + closes_after <= series.as_of and block + size <= series.horizon_end:
        if block in cuts and block > begin:
            result.append(Joined(stratum=stratum, begin=begin, end=block, units=own))
            begin, own, everybody = block, 0, 0
        own += came.get((block, stratum), 0)
        everybody += sum(units for (at, _), units in came.items() if at == block)
        block += size
        if _ends(series, begin, block, own, everybody) or block == series.horizon_end:
            result.append(Joined(stratum=stratum, begin=begin, end=block, units=own))
            begin, own, everybody = block, 0, 0
    if block in cuts and block > begin:
        # That a cut comes is known before its block is.
        result.append(Joined(stratum=stratum, begin=begin, end=block, units=own))
        begin, own = block, 0
    return [*result, Joined(stratum=stratum, begin=begin, end=None, units=own)]


def _ends(series: Series, begin: int, end: int, own: int, everybody: int) -> bool:
    policy, length = series.policy, end - begin
    if _is_declared(series, begin):
        return own >= policy.block_min_units or length >= DAY
    crowded = everybody >= policy.undeclared_min_units and length >= HOUR
    return own >= policy.undeclared_min_units or crowded or length >= 6 * HOUR


def _is_declared(series: Series, begin: int) -> bool:
    if series.counted("as_drawn", "off_draw") and not series.allocation:
        return True
    share = None
    for epoch in series.allocation or ():
        if epoch.start < begin + series.policy.block_seconds:
            share = epoch.share
    return share is not None and 0 < share < 1
