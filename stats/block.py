"""Analysis blocks: consecutive blocks joined until they hold enough units to be compared."""

from collections.abc import Iterator

from stats.policy import DAY
from stats.series import Series


def analysis_block_ends(series: Series) -> list[int]:
    """The ends, in exposure time, of the analysis blocks that have closed by `as_of`.

    An analysis block ends with the block in which it reaches `block_min_units` (both arms, all
    strata; outcomes never enter), when it is a day long, before a block that holds a cut, and
    with the last block of the horizon. Units are those of exposures, the same for each metric:
    they are read from the one whose cells close first.
    """
    policy = series.policy
    window = series.shortest_window
    closed_until = min(series.as_of - window - policy.grace_seconds, series.horizon_end)
    ends: list[int] = []
    for end in _ends(series):
        if end > closed_until:
            break
        ends.append(end)
    return ends


def _ends(series: Series) -> Iterator[int]:
    """Ends without bound in time; those up to an end don't depend on cells after it."""
    policy = series.policy
    forced = _forced_ends(series)
    begin, bound, units = series.begin, next(forced), 0
    cells = series.first_closed
    arrivals = zip(cells.block.tolist(), (cells.n1 + cells.n0).tolist(), strict=True)
    for block, count in arrivals:
        if block < begin:  # another stratum of the block that ended the analysis block
            continue
        while block >= (limit := min(begin + DAY, bound)):
            yield limit
            begin, units = limit, 0
            bound = bound if limit < bound else next(forced)
        units += count
        if units >= policy.block_min_units:
            begin, units = block + policy.block_seconds, 0
            yield begin
            bound = bound if begin < bound else next(forced)
    while True:
        begin = min(begin + DAY, bound)
        yield begin
        bound = bound if begin < bound else next(forced)


def _forced_ends(series: Series) -> Iterator[int]:
    """Cuts and the horizon, ascending; after the horizon, days without number."""
    size = series.policy.block_seconds
    cuts = {cut - cut % size for cut in series.cuts}
    yield from sorted(cut for cut in cuts if series.begin < cut < series.horizon_end)
    end = series.horizon_end
    while True:
        yield end
        end += DAY
