"""Each gate in a row of the page: its false alarms, its case, and a gain that is kept."""

import re
from collections.abc import Sequence

from benchmarks.calibration.sections.gate_rows import GATE_ROWS
from benchmarks.calibration.sections.section import Section

TEXT = """
From the rows of this page: how often the gate holds a look where nothing is wrong, how often its
case is answered without it and with it, and how often a true +10 % is kept beside it.
"""
_ROW = re.compile(r"\| (?P<name>.+?)(?: \(worst of \d+\))? \| (?P<share>[\d.]+) of [\d,]+ \|.*")
OTHERS = """
Not in it: `no_value`, `empty` and `not_vouched`, the test of `other_currency` and `before_exposure`
on other outcomes; `crossover`, `control_unnamed` and `user_unnamed`, which are counts; and `draw`,
which without a leak has nothing to alarm on.
"""


def each_gate(page: Sequence[str]) -> Section:
    """The table of all gates, made of the rows of the page."""
    shares = {
        row["name"]: row["share"] for line in page if (row := _ROW.fullmatch(line)) is not None
    }
    lines = [
        "| gate | nothing wrong: held back | its case, without it | with it | +10 %: kept |",
        "| --- | --- | --- | --- | --- |",
    ]
    for gate, names in GATE_ROWS.items():
        cells = ["–" if name is None else shares.get(name, "not measured") for name in names]
        lines.append(f"| `{gate}` | {' | '.join(cells)} |")
    return Section(
        title="Each gate", text=" ".join(TEXT.split()), after=[*lines, "", " ".join(OTHERS.split())]
    )
