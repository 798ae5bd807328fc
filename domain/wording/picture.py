"""The picture of an experiment: its words and numbers, for every face that draws it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from domain.contract import Contract
from domain.evidence.document import Evidence
from domain.evidence.results import EvidenceGates, EvidenceGuardrail
from domain.measure import Measure, measure_of, typical_lift
from domain.wording.headline import Headline, headline_of
from domain.wording.looks import Estimate, Look, estimates, extent, fired_at, held_spans, looks_of
from domain.wording.metrics import metric_rows

_MOST_LANES = 4


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A moment that the picture names.

    Attributes:
        at: When, in seconds since the epoch.
        lift: The estimate then; None where there is none.
    """

    words: str
    at: float
    lift: float | None


@dataclass(frozen=True, kw_only=True)
class Lane:
    """The state of the gates or of a guardrail over time.

    Attributes:
        since: When that began, in seconds since the epoch; None where the state says no time.
    """

    name: str
    state: str
    since: float | None
    tone: Literal["held", "fault", "ok", "unknown"]
    spans: Sequence[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An experiment's evidence as a picture tells it; differences are those of the document.

    Attributes:
        looks: The looks, in order.
        marks: The moments that it names, in order.
    """

    measure: Measure
    headline: Headline
    looks: Sequence[Look]
    drawn: Sequence[Estimate]
    extent: tuple[float, float]
    marks: Sequence[Mark]
    held: Sequence[tuple[float, float]]
    lanes: Sequence[Lane]
    counts: str
    fires: float


def picture_of(evidence: Evidence, contract: Contract) -> Picture | None:
    """Returns the picture of an experiment; None before the first look."""
    looks = looks_of(evidence)
    if not looks:
        return None
    drawn = estimates(looks)
    measure, held = measure_of(evidence), held_spans(looks)
    decided = looks[-1].at if contract.decided else None
    return Picture(
        measure=measure,
        headline=headline_of(contract),
        looks=looks,
        drawn=drawn,
        extent=extent(drawn) if drawn else (-0.01, 0.01),
        marks=_marks(drawn, fired_at(evidence, looks), decided),
        held=held,
        lanes=[_gates(evidence, looks, held), *_guardrails(evidence, until=looks[-1].at)],
        counts=_counts(evidence, measure, is_open=decided is None),
        fires=1 / evidence.policy.level,
    )


def _marks(drawn: Sequence[Estimate], fired: float | None, decided: float | None) -> list[Mark]:
    named = [("fired", fired), ("decided", decided)]
    if fired is not None and fired == decided:
        named = [("fired and decided", fired)]
    return [
        Mark(words=words, at=at, lift=next((e.lift for e in reversed(drawn) if e.at <= at), None))
        for words, at in named
        if at is not None
    ]


def _gates(evidence: Evidence, looks: Sequence[Look], held: Sequence[tuple[float, float]]) -> Lane:
    state = _gate_state(evidence.gates, looks)
    return Lane(name="gates", state=state, since=None, tone="held", spans=held)


def _gate_state(gates: EvidenceGates, looks: Sequence[Look]) -> str:
    because = gates.interacting_because
    if len(because) > 0:
        more = f" +{len(because) - 1}" if len(because) > 1 else ""
        return f"held: {because[0].replace('_', ' ')}{more}"
    if looks[-1].gated:
        vif = gates.vif
        return f"held: VIF {vif:.3g}" if isinstance(vif, float) else "held: no contrast"
    return "held before" if any(look.gated for look in looks) else "no check failed"


def _guardrails(evidence: Evidence, *, until: float) -> list[Lane]:
    """Returns those that tell most: the breached before the unknown before the unharmed."""
    ranked = sorted(
        evidence.guardrails,
        key=lambda rail: (rail.breached_at is None, rail.non_inferior_at is not None),
    )
    states = {row.metric: row.state for row in metric_rows(evidence)}
    return [
        _guardrail(guardrail, states[guardrail.metric], until=until)
        for guardrail in ranked[:_MOST_LANES]
    ]


def _guardrail(guardrail: EvidenceGuardrail, unknown: str, *, until: float) -> Lane:
    name = guardrail.metric
    if guardrail.breached_at is not None:
        since = guardrail.breached_at.timestamp()
        return Lane(name=name, state="breached", since=since, tone="fault", spans=[(since, until)])
    if guardrail.non_inferior_at is not None:
        since = guardrail.non_inferior_at.timestamp()
        return Lane(name=name, state="unharmed", since=since, tone="ok", spans=[(since, until)])
    return Lane(name=name, state=unknown, since=None, tone="unknown", spans=[])


def _counts(evidence: Evidence, measure: Measure, *, is_open: bool) -> str:
    both = {"control": evidence.arms.control, "treatment": evidence.arms.treatment}
    arms = [
        f"{name} {arm.units:,} ({measure.level(arm.level)})"
        for name, arm in both.items()
        if arm.units
    ]
    counts = f"{evidence.sessions.accumulated:,} units: {', '.join(arms) or 'none yet'}"
    needed = evidence.sessions.required
    if needed is None or not is_open:
        return counts
    lift = typical_lift(evidence.policy.rho.day)
    return f"{counts}; about {needed:,.0f} are needed to find a change of {lift}"
