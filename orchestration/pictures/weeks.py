"""The picture of the ledger: experiments by week, those kept, and those whose keep stands."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from orchestration.pictures import svg

_WIDTH, _ROW, _TOP = 700, 30, 40
_LEFT, _RIGHT = 96, 640
_BARS = (("judged", svg.FAINT), ("kept", svg.SKY), ("standing", svg.DEEP_GREEN))
_NAMES = {"judged": "judged", "kept": "kept", "standing": "stand"}


def weeks_picture(weeks: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns the weeks as an SVG: bars within one another, from judged to standing.

    Args:
        weeks: Of ledgers: a week that several of them have is added up.

    Returns:
        None without a week.
    """
    sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_NAMES, 0))
    for week in weeks:
        for name in _NAMES:
            sums[week["week"]][name] += week[name]
    if not sums:
        return None
    most = max(week["judged"] for week in sums.values())
    shapes = [
        shape
        for number, (monday, counts) in enumerate(sorted(sums.items()))
        for shape in _row(_TOP + _ROW * number, monday, counts, scale=(_RIGHT - _LEFT) / most)
    ]
    return svg.picture(_WIDTH, _TOP + _ROW * len(sums) + 12, [*_legend(), *shapes])


def _legend() -> list[str]:
    shapes: list[str] = []
    for number, (name, fill) in enumerate(_BARS):
        x = _LEFT + 90.0 * number
        shapes += [svg.area((x, 14), 12, 12, fill=fill), svg.words(x + 18, 24, _NAMES[name])]
    return shapes


def _row(top: float, monday: str, counts: Mapping[str, int], *, scale: float) -> list[str]:
    bars = [
        svg.area((_LEFT, top + 3 * depth), scale * counts[name], 20 - 6 * depth, fill=fill)
        for depth, (name, fill) in enumerate(_BARS)
    ]
    told = f"{counts['judged']:,} · {counts['kept']:,} · {counts['standing']:,}"
    end = _LEFT + scale * counts["judged"] + 6
    return [
        svg.words(_LEFT - 8, top + 14, monday, anchor="end"),
        *bars,
        svg.words(min(end, _RIGHT + 6), top + 14, told),
    ]
