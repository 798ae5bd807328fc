"""Doors: the product files that a new thing touches, counted by adding it in a scratch tree.

    python -m benchmarks.doors

Each addition is a list of edits and a proof that runs in the tree: where it fails, nothing is
counted. A policy's further member also stands in `LATER` of its own file, so that policies that
were frozen before are read; tests and pages are left out.
"""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import options, report

ROOT = Path(__file__).parents[1]
_ROOMS = ("api", "cli", "domain", "mcp_server", "orchestration", "stats", "storage", "tests")


@dataclass(frozen=True, kw_only=True)
class Addition:
    """A thing to add.

    Attributes:
        edits: A file, the text after which something is inserted, and what is; an empty text
            begins a file.
        proof: A program that fails unless the addition acts.
    """

    thing: str
    goal: int
    edits: tuple[tuple[str, str, str], ...]
    proof: str

    @property
    def files(self) -> int:
        """How many product files it touches."""
        return len({file for file, _, _ in self.edits})

    def apply(self, tree: Path) -> None:
        """Adds it to a tree.

        Raises:
            LookupError: The text before an insertion does not stand in its file once.
        """
        for file, before, inserted in self.edits:
            path = tree / file
            text = path.read_text() if before else ""
            if before and text.count(before) != 1:
                raise LookupError(f"{file} has {text.count(before)} times: {before}")
            path.write_text(text.replace(before, before + inserted) if before else inserted)


_EFFECT = """
import numpy as np
from domain.policy import Numbers
from stats.counts.unit_counts import UnitCounts
from stats.decision.evidence import evaluate
from tests.stats.conftest import make_series

def seen(*, units=None, **numbers):
    rows = [(12 * hour, 0, 500, 150, 500, 50) for hour in range(4)]
    series = make_series(rows, policy=Numbers(**numbers), as_of=4 * 3600 + 1920, units=units)
    return evaluate([series])[0]
"""
ADDITIONS = (
    Addition(
        thing="a warning",
        goal=2,
        edits=(
            (
                "orchestration/pipeline/document.py",
                "    warnings = {\n",
                '        "busy": units.unknown_commit > 10**9,\n',
            ),
            ("domain/wording/warnings.py", "WARNINGS = {\n", '    "busy": "It is busy.",\n'),
        ),
        proof="""
import inspect
from msgspec import structs
import orchestration.pipeline.document as document
from domain.wording.warnings import warning_sentences
from tests.stores.example import example_evidence

assert '"busy": units.unknown_commit' in inspect.getsource(document)
warned = structs.replace(example_evidence(), warnings=("busy",))
assert warning_sentences(warned) == ["It is busy."]
""",
    ),
    Addition(
        thing="a setting that a verdict reads",
        goal=2,
        edits=(
            (
                "storage/tenants/settings.py",
                '            frozen="whole",\n        ),\n    ] = 0.05\n',
                (
                    "    least_hours: Annotated[\n"
                    '        int, form_field("Least hours", "An answer waits so long.",'
                    ' frozen="whole")\n    ] = 0\n'
                ),
            ),
            (
                "domain/policy.py",
                '    keep_when: KeepWhen = "alone"\n',
                "    least_hours: int = 0\n",
            ),
            (
                "stats/decision/ruling.py",
                "    open_rules = rules.answered | futile | rules.impatient\n",
                "    open_rules &= looks.at >= gates.series.start + 3600 * policy.least_hours\n",
            ),
        ),
        proof=f"""{_EFFECT}
from storage.experiments.policy import _AS_SET
from storage.tenants.settings import frozen_settings

assert "least_hours" in _AS_SET & frozen_settings("whole")
assert seen().decision.decided
assert not seen(least_hours=99).decision.decided
""",
    ),
    Addition(
        thing="a gate with an input of its own",
        goal=4,
        edits=(
            ("storage/verdicts/gates.py", '    *("own", ', '"excluded", '),
            (
                "stats/gates/exclusion.py",
                "",
                '''"""Exclusion: whether many units are excluded."""

import numpy as np

from domain.cause import Cause
from stats.gates.gate import Gate, Reading, no_reading
from stats.looks.trace import StageLooks


class Exclusion(Gate):
    """Most units are excluded."""

    cause = Cause.EXCLUSION
    member = "excluded_share"
    title = "Few units are excluded"
    why = "most units are excluded"
    step = "Find out why."

    def reading(self, looks: StageLooks) -> Reading:
        """The share of those that are excluded, at all looks of a stage."""
        if (units := looks.series.counted("excluded")) is None:
            return no_reading(looks)
        names = ("excluded", "treatment", "control")
        excluded, *arms = units.sums(*names, at=looks.trace.at, policy=looks.series.policy)
        share = excluded / np.maximum(excluded + sum(arms), 1)
        return Reading(statistic=share, alarm=share > 0.5)
''',
            ),
            ("stats/gates/readings.py", "    Crossover(),\n", "    Exclusion(),\n"),
            (
                "stats/gates/readings.py",
                "from stats.gates.draw import Draw\n",
                "from stats.gates.exclusion import Exclusion\n",
            ),
            ("domain/cause.py", '    UNIT = "unit"\n', '    EXCLUSION = "exclusion"\n'),
            (
                "domain/evidence/results.py",
                "    interacting_because: tuple[Cause, ...]\n",
                "    excluded_share: float | None = None\n",
            ),
        ),
        proof=f"""{_EFFECT}
from storage.verdicts.gates import NO_UNITS, _UNITS

assert "excluded" in NO_UNITS and "coalesce(excluded, 0)" in _UNITS.text
block = np.arange(4) * 3600

def units(excluded):
    columns = {{"excluded": excluded, "treatment": 1, "control": 1}}
    rest = dict.fromkeys(set(NO_UNITS) - {{"block"}} - set(columns), 0)
    every = {{name: np.full(4, each) for name, each in (columns | rest).items()}}
    return UnitCounts(block=block, columns=every)

assert seen(units=units(1)).gates.interacting_because == ()
held = seen(units=units(9))
assert held.gates.interacting_because == ("exclusion",)
assert held.gates.excluded_share == 9 / 11
assert not held.decision.decided
""",
    ),
)


def counted(addition: Addition) -> Addition:
    """Returns an addition whose proof holds in a scratch tree, and did not hold before it.

    Raises:
        AssertionError: It proves nothing, or does not act.
    """
    with TemporaryDirectory() as folder:
        tree = Path(folder)
        for room in _ROOMS:
            shutil.copytree(ROOT / room, tree / room, ignore=shutil.ignore_patterns("__pycache__"))
        for expected in (False, True):
            if expected:
                addition.apply(tree)
            command = [sys.executable, "-c", addition.proof]
            run = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
            if (run.returncode == 0) != expected:
                raise AssertionError(
                    f"{addition.thing}: {run.stderr[-2000:] or 'it proves nothing'}"
                )
    return addition


if __name__ == "__main__":
    report(
        [counted(addition) for addition in ADDITIONS],
        {
            "new": lambda row: row.thing,
            "files": lambda row: str(row.files),
            "at most": lambda row: str(row.goal),
        },
        lines=options(__doc__).parse_args().lines,
        title="Product files that a new thing touches",
    )
