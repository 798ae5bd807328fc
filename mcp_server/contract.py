"""The shapes that the tools take and give: the API's own documents, without members named here."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from domain.checklist.line import ChecklistLine
from domain.contract import Contract
from domain.document import Document
from domain.evidence.counts import Sessions
from domain.evidence.document import ClosedExperiment, Evidence
from domain.evidence.effect import Effect
from domain.evidence.policy import EvidencePolicy
from domain.evidence.results import Known, MetricRow
from domain.lineage.control_state import BaseMove
from domain.listing import ListedVerdict, VerdictList
from domain.planning.place import Place
from domain.planning.plan import Prospect

# The members of a document that an agent needs; a document that is not here is given whole.
SHOWN: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    Place: ("action", "kind", "share", "experiment_id"),
    ListedVerdict: (
        *("experiment_id", "treatment_commit", "metric", "headline", "action", "contract"),
    ),
    Evidence: (
        *("experiment_id", "policy", "sentence", "known", "effect", "metrics", "base_moved"),
        *("sessions", "warnings"),
    ),
    ClosedExperiment: ("experiment_id", "sentence", "warnings"),
    EvidencePolicy: ("attempt",),
    Known: ("sentence",),
    Effect: (
        *("estimate", "standard_error", "relative", "likelihood"),
        *("final", "trainable", "reward_at", "learned", "credible"),
    ),
    MetricRow: ("metric", "state", "control", "treatment", "interval"),
    BaseMove: ("rebase_on", "changes", "continues"),
    Sessions: ("accumulated", "required", "per_day", "projected_decision_at"),
    ChecklistLine: ("check", "seen", "fix"),
    Prospect: ("relative_lift", "days_to_decide", "days_to_exclude_harm"),
}

ExperimentId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=128,
        description="Identifier that register_experiment gave, or list_experiments shows.",
    ),
]


class Shape(BaseModel):
    """A JSON object with exactly the members it names."""

    # Else 1 would be taken for true, and true for a dollar.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TargetMetric(Shape):
    """A metric with the worth of a conversion, which makes `value_at_risk` known."""

    name: Annotated[str, Field(min_length=1, description="The metric: an event's name.")]
    value_per_conversion: Annotated[
        float, Field(allow_inf_nan=False, description="Dollars that a conversion is worth.")
    ]


# An integer stays an integer, as events have it.
_Number = Annotated[int | float, WithJsonSchema({"type": "number"})]


class TreatmentFlag(Shape):
    """A change behind a feature flag: a single build, two behaviours."""

    name: Annotated[str, Field(min_length=1, description="The flag's name.")]
    treatment: Annotated[str | bool | _Number, Field(description="Value in the treatment arm.")]
    control: Annotated[
        str | bool | _Number | None,
        Field(description="Value in the control arm; default: the other."),
    ] = None


class Explanation(Document, frozen=True, kw_only=True):
    """An experiment's evidence, and the checks that it fails."""

    evidence: Annotated[
        Evidence, Meta(description="Without numbers where it ended before it was computed.")
    ]
    faults: Annotated[
        tuple[ChecklistLine, ...] | None,
        Meta(description="Its failed set-up checks; null where they could not be read."),
    ]
    left_out: Annotated[int, Meta(description="Entries dropped to stay short.")]


class Quicker(Document, frozen=True, kw_only=True):
    """Another design, with its days for a lift of 20 %."""

    change: Annotated[str, Meta(description="What to do instead.")]
    days_to_decide: Annotated[float, Meta(description="For a lift of 20 %.")]


class Plan(Document, frozen=True, kw_only=True):
    """How long a canary takes."""

    lifts: Annotated[tuple[Prospect, ...], Meta(description="By size; days of traffic.")]
    horizon_days: Annotated[int, Meta(description="When an experiment ends in any case.")]
    smallest_lift_by_horizon: Annotated[
        float | None, Meta(description="Relative; null where the traffic finds none by then.")
    ]
    quicker: Annotated[tuple[Quicker, ...], Meta(description="What you could do instead.")]


class SetUp(Document, frozen=True, kw_only=True):
    """The next step to wire a project, and its failed checks."""

    done: Annotated[int, Meta(description="Lines of the checklist that are right.")]
    of: Annotated[int, Meta(description="Lines in all.")]
    step: Annotated[
        ChecklistLine | None, Meta(description="The line to do next; null when all is wired.")
    ]
    example: Annotated[str | None, Meta(description="What to write, where it can be shown.")]
    red: Annotated[tuple[ChecklistLine, ...], Meta(description="Failed checks.")]
    left_out: Annotated[int, Meta(description="Entries dropped to stay short.")]


def shown(value: object) -> Any:  # noqa: ANN401 - JSON
    """Returns a document as an agent gets it."""
    if isinstance(value, msgspec.Struct):
        names = SHOWN.get(type(value), value.__struct_fields__)
        return {name: shown(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [shown(part) for part in value]
    return msgspec.to_builtins(value)


def answer_schema(answer: type[msgspec.Struct]) -> dict[str, object]:
    """Returns the JSON schema of a document as `shown` returns it."""
    _, parts = msgspec.json.schema_components([answer], ref_template="#/$defs/{name}")
    parts[answer.__name__]["additionalProperties"] = False
    for member in parts[Contract.__name__]["properties"].values() if answer is VerdictList else ():
        # get_verdict describes it.
        member.pop("description", None)
    for document, names in SHOWN.items():
        if document.__name__ in parts:
            members = parts[document.__name__]["properties"]
            parts[document.__name__] |= {
                "properties": {name: members[name] for name in names},
                # An experiment that ended before it was computed has no more members.
                "required": list(SHOWN[ClosedExperiment] if document is Evidence else names),
            }
    return written_out({**parts[answer.__name__], "$defs": parts})


def written_out(schema: dict[str, Any]) -> dict[str, object]:
    """Returns a schema without references and tuples, which some agents' clients refuse."""
    parts = schema.pop("$defs", {})

    def written(node: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(node, list):
            return [written(part) for part in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            # Its members say what it is, in less room.
            part = {**parts[node["$ref"].rpartition("/")[2]], "description": None, **node}
            del part["$ref"]
            return written({name: each for name, each in part.items() if each is not None})
        # Pydantic's titles repeat the names, in an agent's context too.
        kept = {
            name: written(each)
            for name, each in node.items()
            if name != "title" or not isinstance(each, str)
        }
        if "prefixItems" in kept:
            first, *others = kept.pop("prefixItems")
            kept["items"] = (
                {"anyOf": [first, *others]} if any(o != first for o in others) else first
            )
        return kept

    return written(schema)
