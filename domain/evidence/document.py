"""The evidence document of an experiment: its words, its numbers and its policy, as of a look."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from domain.document import Document, Moment
from domain.evidence.counts import Arms, Counts, LeftOut, Sessions, TippingPoint, Vouched
from domain.evidence.effect import Effect
from domain.evidence.policy import EvidencePolicy
from domain.evidence.results import (
    Adjustment,
    Candidate,
    EvidenceDraw,
    EvidenceGates,
    EvidenceGuardrail,
    EvidenceLook,
    EvidenceSplit,
    FlagUnits,
    Known,
    MetricRow,
    Surplus,
    Totals,
    YesNo,
)
from domain.lineage.control_state import BaseMove
from domain.lineage.serving import MissingControl
from domain.words import EndedBecause


class ValueRange(Document, frozen=True, kw_only=True):
    """Dollars a day, by the interval of the lift and the units of the last 7 days."""

    low: float
    high: float


class EvidenceWords(Document, frozen=True, kw_only=True):
    """The words that every page, picture and tool shows as they are."""

    sentence: Annotated[str, Meta(description="What is known, in at most two sentences.")]
    headline: Annotated[str, Meta(description="`Keep`, `Can't say yet` and the like.")]
    reason: Annotated[str, Meta(description="The sentence without its headline.")]
    advice: Annotated[
        tuple[str, ...], Meta(description="What to do now, the most important first.")
    ]
    experiment_id: str


class Evidence(EvidenceWords, frozen=True, kw_only=True):
    """All that a verdict rests on, as of a look: the deciding look, else the last."""

    as_of: Annotated[Moment | None, Meta(description="Null where it ended before any look.")]
    change: Annotated[
        tuple[str, ...], Meta(description="The change under test: lineage of treatment − control.")
    ]
    joint_with: Annotated[
        tuple[str, ...],
        Meta(description="The changes under test that are not the treatment commit's own."),
    ]
    base_moved: Annotated[
        BaseMove | None,
        Meta(description="Null while a build is served that the treatment can be compared with."),
    ]
    nothing_to_compare: Annotated[
        MissingControl | None,
        Meta(
            description="While open: null once a unit was compared, or a build without the change"
            " is served beside the treatment."
        ),
    ]
    policy: EvidencePolicy
    arms: Arms
    totals: Totals
    yes_no: YesNo | None = None
    adjustment: Annotated[
        Adjustment | None,
        Meta(description="Left out where the target is not adjusted by the history of its users."),
    ] = None
    known: Known
    looks: tuple[EvidenceLook, ...]
    gates: EvidenceGates
    splits: Annotated[
        tuple[EvidenceSplit, ...] | None,
        Meta(description="Where flags are pooled until the arms carry them unequally."),
    ] = None
    draw: Annotated[
        EvidenceDraw | None, Meta(description="Null where the published draw gives no arms.")
    ] = None
    flag_values: Annotated[
        tuple[FlagUnits, ...],
        Meta(description="Of a flag whose registration names no control; treatment's comes first."),
    ] = ()
    guardrails: tuple[EvidenceGuardrail, ...]
    candidate: Candidate | None
    surplus: Annotated[
        Surplus | None, Meta(description="Null where no share is declared for most of the units.")
    ]
    sessions: Sessions
    tipping_point: TippingPoint | None
    vouched: Vouched | None
    left_out: Annotated[tuple[LeftOut, ...], Meta(description="A row for each reason there is.")]
    counts: Counts
    retrospective: Annotated[
        bool,
        Meta(
            description="Whether it is on imported or replayed events, or was registered after its"
            " last outcome had closed: it is in no ledger, and nothing is to be trained on it."
        ),
    ] = False
    never_received: Annotated[
        tuple[str, ...],
        Meta(
            description="The target and the guardrails that had no event by the time of the look."
        ),
    ]
    warnings: Annotated[
        tuple[str, ...], Meta(description="Words for what to look at beside the verdict.")
    ]
    ended_because: Annotated[
        EndedBecause | None, Meta(description="What ended it without an answer.")
    ]
    digest: Annotated[
        str,
        Meta(description="SHA-256 over cells, deploys and policy: of the same evidence the same."),
    ]
    metrics: tuple[MetricRow, ...]
    value_range: ValueRange | None
    effect: Annotated[Effect | None, Meta(description="Null where it ended before any look.")]


class ClosedExperiment(EvidenceWords, frozen=True, kw_only=True):
    """An experiment that ended before it was computed: no deploy came, or its data broke it."""

    as_of: None
    warnings: tuple[str, ...] = ()
    ended_because: EndedBecause | None = None


AnyEvidence = Evidence | ClosedExperiment


class _Arms(msgspec.Struct):
    """The member by which a document with numbers is known."""

    arms: msgspec.Raw | UnsetType = UNSET


_NUMBERS = msgspec.json.Decoder(_Arms)
_EVIDENCE = msgspec.json.Decoder(Evidence)
_CLOSED = msgspec.json.Decoder(ClosedExperiment)


def evidence_of(text: str | bytes | None) -> AnyEvidence | None:
    """Returns the evidence that was published as this text; None where there is none yet.

    Raises:
        msgspec.MsgspecError: It is no evidence document.
    """
    if text in (None, "null"):
        return None
    decoder = _CLOSED if _NUMBERS.decode(text).arms is UNSET else _EVIDENCE
    return decoder.decode(text)


def evidence_from(members: object) -> AnyEvidence:
    """Returns the evidence that decoded JSON holds.

    Raises:
        msgspec.ValidationError: It is no evidence document.
    """
    numbers = isinstance(members, dict) and "arms" in members
    return msgspec.convert(members, Evidence if numbers else ClosedExperiment)


def looked_at(evidence: AnyEvidence | None) -> Evidence | None:
    """Returns evidence with a look; None before the first, and where there never was any."""
    return evidence if isinstance(evidence, Evidence) and evidence.as_of is not None else None
