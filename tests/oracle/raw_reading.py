"""A raw reading: an attribution in the shape that the engine and the evidence document read."""

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from domain.evidence.counts import Counts
from domain.lineage.serving import ReleaseStep
from domain.millionths import MILLION
from domain.policy import Policy
from stats.decision.evidence import Evidence
from storage.pipeline.moments import moment_of
from storage.schema.encoding import LEFT_OUT
from storage.verdicts.evidence import CountsAt, ExperimentReading, UnitCounts, units_left_out
from storage.verdicts.gates import (
    NAMELESS,
    NO_UNITS,
    Allocation,
    Crossing,
    GateReading,
    LateOutcome,
)
from storage.verdicts.packed_cells import Columns
from tests.oracle.attribution import Attribution
from tests.oracle.calendar import BLOCK, Calendar, block_of
from tests.oracle.frozen import FrozenExperiment
from tests.oracle.outcomes import PAIR, Metric, Outcomes
from tests.oracle.picks import CLASSES
from tests.oracle.raw_log import RawDeploy
from tests.oracle.standings import ARMS, PARTIAL, TREATMENT

# In microseconds, which raw readings count time in.
_SECOND = 1_000_000


def reading_of(
    experiment: FrozenExperiment,
    facts: Attribution,
    *,
    calendar: Calendar,
    deploys: Sequence[RawDeploy],
    pooled: Sequence[tuple[str, Columns]],
    shares: Mapping[str, Sequence[Allocation]],
) -> ExperimentReading:
    """Returns what the engine reads of an experiment, from what was facts of its units."""
    standings = {each.standing.stratum: each.standing for each in facts.exposures.values()}
    strata = sorted(standings)
    counting = _in_force(deploys, calendar)
    spans = _declared_spans(experiment, counting, calendar)
    return ExperimentReading(
        stratum_shares=shares,
        experiment_id=experiment.experiment_id,
        project_id=experiment.project_id,
        environment=experiment.environment,
        treatment_commit=experiment.treatment_commit,
        control_commit=experiment.control_commit,
        joint_with=experiment.joint_with,
        registered_at=experiment.registered_at,
        starts_at=experiment.starts_at,
        bound_at=experiment.bound_at,
        closed_at=experiment.closed_at,
        change=experiment.change,
        policy=Policy.of(experiment.policy),
        frozen=experiment.policy,
        as_of=moment_of(calendar.until),
        strata=strata,
        lineages=[standings[stratum].lineage for stratum in strata],
        flags=[standings[stratum].flags for stratum in strata],
        cells_by_metric={
            outcomes.metric.name: _packed(
                cells_of(facts, outcomes, calendar=calendar), strata=strata
            )
            for outcomes in facts.outcomes
        }
        | {
            name: _packed(cells, strata=strata)
            for name, cells in picked_cells_of(facts, calendar=calendar).items()
        },
        cuts=[moment_of(at) for at in _cuts(counting, calendar)],
        deploys=[
            ReleaseStep(
                commit=deploy.commit,
                base=deploy.base,
                deployed_at=moment_of(deploy.deployed_at),
                recorded_at=moment_of(deploy.recorded_at),
                allocation=deploy.allocation,
                patch_id=deploy.posted.get("patch_id"),
                changes=deploy.posted.get("changes", []),
                reverts=deploy.posted.get("reverts", []),
            )
            for deploy in deploys
        ],
        base_assumed=any(
            deploy.base_assumed for deploy in deploys if deploy.deploy_id == experiment.deploy_id
        ),
        allocations=spans,
        gates=GateReading(
            nameless=_nameless(experiment, facts),
            units=_units(experiment, facts, calendar),
            crossings=sorted(
                (
                    Crossing(
                        block=moment_of(facts.exposures[unit].block),
                        stratum=facts.exposures[unit].standing.stratum,
                        at=moment_of(at),
                    )
                    for unit, at in facts.crossed.items()
                ),
                key=lambda crossing: (crossing.at, crossing.block, crossing.stratum),
            ),
            late=_late_outcomes(facts, calendar),
            pooled=pooled,
        ),
    )


_NAMES = ("y", "yy", "d", "dd", "yd")
SUMS = tuple(f"{name}{arm}" for arm in (1, 0) for name in _NAMES)

# --- Cells -------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class _ArmCount:
    """The counts of an arm of a cell, with the amounts of its units."""

    n: int = 0
    x: int = 0
    amounts: list[int] = field(default_factory=list[int])

    def sums(self, arm: int, metric: Metric) -> dict[str, float]:
        """Of a mean the sums of amounts and of squares, of a ratio those of both counts."""
        per, named = bool(metric.per), _NAMES if metric.is_mean or metric.per else ()
        pairs = [(0, 0), *(divmod(amount, PAIR if per else 1) for amount in self.amounts)]
        terms = [(y, y * y, d, d * d, y * d) for y, d in pairs]
        y, yy, *others = (sum(column) for column in zip(*terms, strict=True))
        sums = (y, yy, *others) if per else (y / MILLION, yy / MILLION**2)
        return {f"{name}{arm}": float(value) for name, value in zip(named, sums, strict=False)}


@dataclass(frozen=True, kw_only=True)
class CellRow:
    """A closed cell of a metric, with the sums of a mean or ratio by name."""

    block: datetime
    stratum: str
    n1: int
    x1: int
    n0: int
    x0: int
    sums: Mapping[str, float]


def _packed(cells: Sequence[CellRow], *, strata: Sequence[str]) -> Columns:
    counts = {
        name: array("q", (getattr(cell, name) for cell in cells))
        for name in ("n1", "x1", "n0", "x0")
    }
    sums = {
        name: array("d", (cell.sums[name] for cell in cells if name in cell.sums)) for name in SUMS
    }
    return {
        "block": array("q", (int(cell.block.timestamp()) for cell in cells)),
        "stratum": array("q", (strata.index(cell.stratum) for cell in cells)),
        **counts,
        **sums,
    }


def cells_of(facts: Attribution, outcomes: Outcomes, *, calendar: Calendar) -> list[CellRow]:
    """Returns the closed cells of a metric, by block and stratum."""
    window = outcomes.metric.open_for
    arms: dict[tuple[int, str], tuple[_ArmCount, _ArmCount]] = defaultdict(
        lambda: (_ArmCount(), _ArmCount())
    )
    for unit, exposed in facts.exposures.items():
        if not exposed.counts or not calendar.has_closed(exposed.block, window):
            continue
        if outcomes.metric.is_turnover and exposed.pseudonym is None:
            continue
        closes = calendar.closes(exposed.block, window)
        arm = arms[exposed.block, exposed.standing.stratum][exposed.arm == TREATMENT]
        arm.n += 1
        arm.x += outcomes.exceeds(unit, closes) or outcomes.received.get(unit, closes + 1) <= closes
        arm.x += bool(outcomes.metric.received) and unit in outcomes.values
        if unit in outcomes.values:
            arm.amounts.append(_amount(outcomes, unit, closes=closes))
    return [
        _cell(block, stratum, *arms[block, stratum], metric=outcomes.metric)
        for block, stratum in sorted(arms)
    ]


# The counts beyond each further threshold stand where a mean or ratio has sums.
_FURTHER = ("y", "yy", "d")


def picked_cells_of(facts: Attribution, *, calendar: Calendar) -> dict[str, list[CellRow]]:
    """Returns the closed cells of picked events, by name, block and stratum."""
    cells: dict[str, list[CellRow]] = {}
    for picks in facts.picks:
        arms: dict[tuple[int, int, str], list[list[bool]]] = defaultdict(list)
        for unit in picks.units:
            exposed = facts.exposures[unit]
            if exposed.counts and calendar.has_closed(exposed.block, picks.metric.open_for):
                place, over = picks.pick(unit)
                beyond = [*over, *[False] * (4 - len(over))]
                own = arms[place, exposed.block, exposed.standing.stratum]
                own.append([exposed.arm == TREATMENT, *beyond])
        for place in CLASSES:
            cells[f"{picks.name} {place}"] = [
                _picked_cell(block, stratum, units)
                for (own, block, stratum), units in sorted(arms.items())
                if own == place
            ]
    return cells


def _picked_cell(block: int, stratum: str, units: Sequence[Sequence[bool]]) -> CellRow:
    n, x, sums = [0, 0], [0, 0], {f"{name}{arm}": 0.0 for name in _NAMES for arm in (1, 0)}
    for treated, first, *further in units:
        n[treated] += 1
        x[treated] += first
        for name, beyond in zip(_FURTHER, further, strict=True):
            sums[f"{name}{int(treated)}"] += beyond
    return CellRow(
        block=moment_of(block), stratum=stratum, n1=n[1], x1=x[1], n0=n[0], x0=x[0], sums=sums
    )


def _amount(outcomes: Outcomes, unit: str, *, closes: int) -> int:
    """Returns what a unit brought in time, in whole millionths."""
    values = outcomes.values[unit].values()
    return sum(value for received, value in values if received <= closes)


def _cell(
    block: int, stratum: str, control: _ArmCount, treatment: _ArmCount, *, metric: Metric
) -> CellRow:
    return CellRow(
        block=moment_of(block),
        stratum=stratum,
        n1=treatment.n,
        x1=treatment.x,
        n0=control.n,
        x0=control.x,
        sums={**treatment.sums(1, metric), **control.sums(0, metric)},
    )


# --- Deploys -----------------------------------------------------------------------------------


def _in_force(deploys: Sequence[RawDeploy], calendar: Calendar) -> list[tuple[int, RawDeploy]]:
    """Returns when each deploy comes into force, in that order.

    With its own block where that was still open at the recording, or the binding came later; else
    with the first block that was. A step that another of its commit has overtaken never does.
    """
    answer: list[tuple[int, RawDeploy]] = []
    for number, deploy in enumerate(deploys):
        begin = _comes_into_force(deploy, calendar)
        overtaken = any(
            other.commit == deploy.commit and _comes_into_force(other, calendar) <= begin
            for other in deploys[number + 1 :]
        )
        if not overtaken:
            answer.append((begin, deploy))
    return sorted(answer, key=lambda each: each[0])


def _comes_into_force(deploy: RawDeploy, calendar: Calendar) -> int:
    block = own = block_of(deploy.deployed_at)
    while calendar.known_at(block) < deploy.recorded_at:
        block += BLOCK
    return deploy.deployed_at if block == own else block


def _cuts(deploys: Iterable[tuple[int, RawDeploy]], calendar: Calendar) -> list[int]:
    """Returns when a commit was first deployed, or its declared allocation changed."""
    last: dict[str, RawDeploy] = {}
    cuts: list[int] = []
    for begin, deploy in deploys:
        before = last.get(deploy.commit)
        last[deploy.commit] = deploy
        same = before is not None and before.allocation == deploy.allocation
        if not same and begin > calendar.start:
            cuts.append(begin)
    return cuts


def _declared_spans(
    experiment: FrozenExperiment, deploys: Iterable[tuple[int, RawDeploy]], calendar: Calendar
) -> list[Allocation]:
    """Returns the spans of constant declaration of the treatment's share, none for a flag."""
    if experiment.policy["flag"] is not None:
        return []
    steps: list[tuple[int, float | None]] = []
    for start, deploy in deploys:
        if deploy.commit == experiment.treatment_commit:
            share = deploy.allocation
        elif deploy.allocation in (None, 1.0) and start > calendar.start:
            share = None
        else:
            continue
        if not steps or steps[-1][1] != share:
            steps.append((start, share))
    ends = [begin for begin, _ in steps[1:]]
    return [
        Allocation(begin=moment_of(begin), end=None if end is None else moment_of(end), share=share)
        for (begin, share), end in zip(steps, [*ends, None], strict=bool(steps))
        if end is None or end > calendar.start
    ]


# --- Gates -------------------------------------------------------------------------------------


def _arrival(
    experiment: FrozenExperiment, facts: Attribution, unit: str, unknown: int | None = None
) -> tuple[int, bool] | None:
    """Returns the block in which a unit arrives, and whether treatment served it."""
    exposed = facts.exposures.get(unit)
    met = [] if unknown is None else [(unknown, 1, False)]
    if exposed is not None and exposed.arm.startswith((*ARMS, PARTIAL, "warming")):
        met.append((exposed.block, 0, exposed.standing.commit == experiment.treatment_commit))
    if unit in facts.in_flight or not met:
        return None
    block, _, own = min(met)
    return block, own


def _nameless(experiment: FrozenExperiment, facts: Attribution) -> list[tuple[str, Columns]]:
    """Returns by name what the events of unknown builds would move; of unrecorded ones by ""."""
    names: dict[str, dict[int, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    unrecorded = {unit: (block, "") for unit, block in facts.unknown.items()}
    for unit, (block, event) in (facts.arrived_by | unrecorded).items():
        after = _arrival(experiment, facts, unit, block)
        if after is None:
            continue
        before, blocks = _arrival(experiment, facts, unit), names[event]
        blocks[block]["units"] += bool(event)
        blocks[after[0]]["treatment" if after[1] else "others"] += 1
        if before is not None:
            blocks[before[0]]["treatment" if before[1] else "others"] -= 1
    for (block, event), units in exposed_by_name(facts).items():
        if event in names:
            names[event][block]["named"] += units
    return [
        (
            event,
            {
                name: array(
                    "q",
                    (
                        block // _SECOND if name == "block" else counts[name]
                        for block, counts in sorted(names[event].items())
                    ),
                )
                for name in NAMELESS
            },
        )
        for event in sorted(names)
    ]


def exposed_by_name(facts: Attribution) -> Counter[tuple[int, str]]:
    """Returns what `block_names` counts, by block and name."""
    return Counter(
        (each.block, each.event)
        for each in facts.exposures.values()
        if not each.arm.startswith(("in_flight", "excluded"))
    )


def counted_units(experiment: FrozenExperiment, facts: Attribution) -> dict[int, Counter[str]]:
    """Returns what `block_units` counts of each block."""
    blocks: dict[int, Counter[str]] = defaultdict(Counter)
    for exposed in facts.exposures.values():
        counts = blocks[exposed.block]
        counts.update([exposed.arm, *_reasons(exposed.arm)])
        if exposed.counts and exposed.as_drawn is not None:
            counts["as_drawn" if exposed.as_drawn else "off_draw"] += 1
        own = exposed.standing.commit == experiment.treatment_commit
        counts["own"] += own and not exposed.arm.startswith(("in_flight", "excluded"))
    for block, users in facts.returned.items():
        for arm, kept in users:
            blocks[block][f"again_{arm}"] += 1
            blocks[block][f"kept_{arm}"] += kept
    return blocks


def _reasons(arm: str) -> list[str]:
    return [reason for reason in LEFT_OUT if arm.startswith(reason)]


def _units(experiment: FrozenExperiment, facts: Attribution, calendar: Calendar) -> Columns:
    blocks = counted_units(experiment, facts)
    for closes in facts.anonymous.values():
        blocks[closes - calendar.closes(0)]["unnamed"] += 1
    for counts in blocks.values():
        served = sum(counts[arm] for arm in (*ARMS, PARTIAL, "warming"))
        counts["others"] = served - counts["own"]
    return {
        name: array(
            "q",
            (
                block // _SECOND if name == "block" else blocks[block][name]
                for block in sorted(blocks)
            ),
        )
        for name in NO_UNITS
    }


def _late_outcomes(facts: Attribution, calendar: Calendar) -> list[LateOutcome]:
    target = facts.outcomes[0]
    late: list[tuple[Any, ...]] = []
    for unit, received in target.received.items():
        exposed = facts.exposures[unit]
        if received > calendar.closes(exposed.block, target.metric.open_for):
            treated = exposed.arm == TREATMENT
            late.append((received, exposed.block, exposed.standing.stratum, treated, unit))
    return [
        LateOutcome(
            block=moment_of(block),
            stratum=stratum,
            treated=treated,
            received_at=moment_of(received),
        )
        for received, block, stratum, treated, _ in sorted(late)
    ]


# --- What is counted beside the cells ----------------------------------------------------------


def units_beside_cells(
    facts: Attribution,
    calendar: Calendar,
    evidence: Evidence,
    *,
    look: int,
    never_received: Sequence[str],
) -> UnitCounts:
    """Returns the counts of units as of a look."""
    exposed = {
        unit: each for unit, each in facts.exposures.items() if calendar.closes(each.block) <= look
    }
    arms = Counter(name for each in exposed.values() for name in (each.arm, *_reasons(each.arm)))
    unknown = {unit for unit, block in facts.unknown.items() if calendar.closes(block) <= look}
    ambiguous = {
        unit
        for unit, block in facts.ambiguous.items()
        if calendar.closes(block) <= look and unit not in unknown
    }
    nameless = {unit for unit, block in facts.nameless.items() if calendar.closes(block) <= look}
    nameless -= unknown | ambiguous
    late = {unit for unit, received in facts.late.items() if received <= look}
    unsigned = {unit for unit, known in facts.unsigned.items() if known <= look}
    left = {
        "late": late - exposed.keys() - unknown - ambiguous - nameless,
        "unmatched_route": {unit for unit, at in facts.unmatched.items() if at <= look},
        "unknown_user": {unit for unit, at in facts.anonymous.items() if at <= look},
    }
    tardy = Counter(
        facts.exposures[unit].arm
        for unit, received in facts.outcomes[0].received.items()
        if calendar.closes(facts.exposures[unit].block, facts.outcomes[0].metric.open_for)
        < received
        <= look
    )
    counted = sum(each.counts for each in exposed.values())
    at = CountsAt(
        experiment_id="",
        look=moment_of(look),
        in_cells=evidence.units_in_cells,
        excluded=evidence.units_excluded,
        compared_with_none=evidence.compared_with_none,
    )
    alone, excluded = sum(at.compared_with_none), sum(at.excluded)
    units = Counts(
        in_cells=at.in_cells,
        compared_with_none=alone,
        open=counted - at.in_cells - alone - excluded,
        late=len(left["late"]),
        in_flight=arms["in_flight"],
        unknown_commit=len(unknown - exposed.keys()),
        ambiguous_commit=len(ambiguous - exposed.keys()),
        unknown_build=len(nameless - exposed.keys()),
        partial=arms["partial"],
        excluded=arms["excluded"] + excluded,
        warming=arms["warming"],
        unmatched_route=len(left["unmatched_route"]),
        unknown_user=len(left["unknown_user"]),
        crossover=sum(at <= look for at in facts.crossed.values()),
        unsigned=len(unsigned - exposed.keys() - unknown - ambiguous - nameless - late),
    )
    arms.update(
        f"{reason}_{facts.served[reason][unit][1]}" for reason in left for unit in left[reason]
    )
    return UnitCounts(
        units=units,
        left_out=units_left_out(arms, at),
        late_treatment=tardy["treatment"],
        late_control=tardy["control"],
        never_received=never_received,
    )


def stratum_contents(
    experiment: FrozenExperiment, facts: Attribution
) -> Mapping[str, frozenset[str]]:
    """Returns the changes that each stratum carries besides the values of the flag under test."""
    flag = experiment.policy["flag"]
    own = f"{flag['name']}=" if flag else "="
    standings = {each.standing.stratum: each.standing for each in facts.exposures.values()}
    return {
        stratum: frozenset(name for name in standing.carried if not name.startswith(own))
        for stratum, standing in standings.items()
    }
