"""The shapes that the tools take and give: the service's own documents, cut to a kilobyte."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field

from domain.document import Document
from domain.evidence.counts import Sessions
from domain.evidence.effect import Effect
from domain.evidence.results import MetricRow
from domain.planning.place import Place
from domain.words import AbstainReason, Action, Verdict

# Of a document of the service the members that an agent needs; of any other all of them.
SHOWN: Mapping[type[msgspec.Struct], tuple[str, ...]] = {
    Place: ("action", "kind", "share", "experiment_id"),
    Effect: (
        *("estimate", "standard_error", "relative", "likelihood"),
        *("final", "trainable", "reward_at"),
    ),
    MetricRow: ("metric", "state", "control", "treatment", "interval"),
    Sessions: ("accumulated", "required", "per_day", "projected_decision_at"),
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

    model_config = ConfigDict(extra="forbid", frozen=True)


class TargetMetric(Shape):
    """A metric with the worth of a conversion, which makes `value_at_risk` known."""

    name: Annotated[str, Field(min_length=1, description="The metric: an event's name.")]
    value_per_conversion: Annotated[
        float, Field(allow_inf_nan=False, description="Dollars that a conversion is worth.")
    ]


class TreatmentFlag(Shape):
    """A change behind a feature flag: a single build, two behaviours."""

    name: Annotated[str, Field(min_length=1, description="The flag's name.")]
    treatment: Annotated[str | bool, Field(description="Its value in the treatment arm.")]
    control: Annotated[
        str | bool | None,
        Field(description="Its value in the control arm; default: any but the treatment's."),
    ] = None


class Listed(Document, frozen=True, kw_only=True):
    """An experiment in the list: its id, commit and state."""

    experiment_id: Annotated[str, Meta(description="Pass this to get_verdict or explain.")]
    treatment_commit: Annotated[
        str | None, Meta(description="First 12 characters; null for a change behind a flag.")
    ]
    metric: Annotated[str, Meta(description="The metric to lift.")]
    verdict: Annotated[Verdict, Meta(description="The verdict that get_verdict returns.")]
    abstain_reason: Annotated[
        AbstainReason | None, Meta(description="Null unless verdict is abstain.")
    ]
    decided: Annotated[bool, Meta(description="True when the verdict is final.")]
    headline: Annotated[str, Meta(description="Its situation now.")]
    action: Annotated[Action, Meta(description="The next step.")]


class Experiments(Document, frozen=True, kw_only=True):
    """A page of the project's experiments, the newest first, in at most a kilobyte."""

    experiments: Annotated[
        tuple[Listed, ...], Meta(description="As many as fit, the newest first.")
    ]
    next_cursor: Annotated[
        str | None, Meta(description="Pass this as cursor for the next page; null on the last.")
    ]


class BaseMove(Document, frozen=True, kw_only=True):
    """The build in the place of the control: rebase, and post the new commit so."""

    on: Annotated[str, Meta(description="The new base_commit.")]
    changes: Annotated[tuple[str, ...], Meta(description="The new commit's changes.")]
    continues: Annotated[bool, Meta(description="Else register the new commit.")]


class Explanation(Document, frozen=True, kw_only=True):
    """The evidence behind a verdict, in at most a kilobyte."""

    experiment_id: Annotated[str, Meta(description="The experiment.")]
    attempt: Annotated[int | None, Meta(description="Which try it is.")]
    sentence: Annotated[str | None, Meta(description="The evidence in at most two sentences.")]
    known: Annotated[str | None, Meta(description="Lifts that the evidence already excludes.")]
    effect: Annotated[Effect | None, Meta(description="Null where nothing was compared.")]
    metrics: Annotated[
        tuple[MetricRow, ...],
        Meta(description="The target, then guardrails. iterate: revise by these."),
    ]
    rebase: Annotated[BaseMove | None, Meta(description="Null while there is a control.")]
    progress: Annotated[
        Sessions | None,
        Meta(description="Sessions so far, and those needed; null where none were ever counted."),
    ]
    warnings: Annotated[tuple[str, ...], Meta(description="Cautions that weaken the evidence.")]
    faults: Annotated[
        tuple[str, ...] | None,
        Meta(description="Failed set-up checks with their fixes; null if not readable."),
    ]
    left_out: Annotated[
        int, Meta(description="Metrics, warnings and faults dropped to stay short.")
    ]


class PlannedLift(Document, frozen=True, kw_only=True):
    """The days that a size of lift takes."""

    relative_lift: Annotated[float, Meta(description="Relative to control's rate.")]
    days_to_decide: Annotated[float, Meta(description="Until 80 % of runs detect it.")]
    days_to_exclude_harm: Annotated[
        float, Meta(description="Until a loss of that size is excluded where there is none.")
    ]


class Quicker(Document, frozen=True, kw_only=True):
    """Another design, with its days for a lift of 20 %."""

    change: Annotated[str, Meta(description="What to do instead.")]
    days_to_decide: Annotated[float, Meta(description="For a lift of 20 %.")]


class Plan(Document, frozen=True, kw_only=True):
    """How long a canary takes, in at most a kilobyte."""

    lifts: Annotated[tuple[PlannedLift, ...], Meta(description="By size; days of traffic.")]
    horizon_days: Annotated[int, Meta(description="When an experiment ends in any case.")]
    smallest_lift_by_horizon: Annotated[
        float | None, Meta(description="Relative; null where the traffic finds none by then.")
    ]
    quicker: Annotated[tuple[Quicker, ...], Meta(description="What you could do instead.")]


class SetUp(Document, frozen=True, kw_only=True):
    """The next step to wire a project, and its failed checks, in at most a kilobyte."""

    done: Annotated[int, Meta(description="Lines of the checklist that are right.")]
    of: Annotated[int, Meta(description="Lines in all.")]
    step: Annotated[str | None, Meta(description="The line to do next; null when all is wired.")]
    seen: Annotated[str | None, Meta(description="What the service saw.")]
    do: Annotated[str | None, Meta(description="What to do.")]
    example: Annotated[str | None, Meta(description="What to write, where it can be shown.")]
    red: Annotated[
        tuple[str, ...], Meta(description="Failed checks, each with its observation and its fix.")
    ]
    left_out: Annotated[int, Meta(description="Failed checks dropped to stay short.")]


def shown(value: object) -> object:
    """Returns a document as an agent gets it."""
    if isinstance(value, msgspec.Struct):
        names = SHOWN.get(type(value), value.__struct_fields__)
        return {name: shown(getattr(value, name)) for name in names}
    if isinstance(value, tuple):
        return [shown(part) for part in value]
    return msgspec.to_builtins(value)


def answer_schema(answer: type[msgspec.Struct]) -> dict[str, Any]:
    """Returns the JSON schema of a document as `shown` returns it."""
    _, parts = msgspec.json.schema_components([answer], ref_template="#/$defs/{name}")
    for part in parts.values():
        part["additionalProperties"] = False
    for document, names in SHOWN.items():
        if document.__name__ in parts:
            members = parts[document.__name__]["properties"]
            parts[document.__name__] |= {
                "properties": {name: members[name] for name in names},
                "required": list(names),
            }
    return written_out({**parts[answer.__name__], "$defs": parts})


def written_out(schema: dict[str, Any]) -> dict[str, Any]:
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
