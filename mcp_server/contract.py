"""The shapes that the tools take and give: the REST models of the reward endpoints."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from domain.planning.place import PlaceAction, PlaceKind
from domain.words import AbstainReason, Verdict

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


class ChangePlace(Shape):
    """A change's place: the next step."""

    action: Annotated[PlaceAction, Field(description="To do now; wait: call again later.")]
    kind: Annotated[PlaceKind | None, Field(description="Null while it is queued.")]
    share: Annotated[float | None, Field(description="Of units to serve it to.")]
    experiment_id: Annotated[str | None, Field(description="For get_verdict.")]


class Listed(Shape):
    """An experiment in the list: its id, commit and state."""

    experiment_id: Annotated[str, Field(description="Pass this to get_verdict or explain.")]
    treatment_commit: Annotated[
        str | None, Field(description="First 12 characters; null for a change behind a flag.")
    ]
    metric: Annotated[str, Field(description="The metric to lift.")]
    verdict: Annotated[Verdict, Field(description="The verdict that get_verdict returns.")]
    abstain_reason: Annotated[
        AbstainReason | None, Field(description="Null unless verdict is abstain.")
    ]
    decided: Annotated[bool, Field(description="True when the verdict is final.")]


class Experiments(Shape):
    """A page of the project's experiments, the newest first, in at most a kilobyte."""

    experiments: Annotated[list[Listed], Field(description="As many as fit, the newest first.")]
    next_cursor: Annotated[
        str | None, Field(description="Pass this as cursor for the next page; null on the last.")
    ]


class Progress(Shape):
    """How far the traffic has come."""

    accumulated: Annotated[int | float | None, Field(description="Sessions counted so far.")]
    required: Annotated[
        int | float | None, Field(description="Sessions likely needed for a verdict.")
    ]
    per_day: Annotated[int | float | None, Field(description="Sessions that come in a day.")]
    projected_decision_at: Annotated[
        str | None, Field(description="When a verdict is likely, at that pace; UTC.")
    ]


class Likelihood(Shape):
    """The likelihood of the sessions alone, relative, for a learner with a prior of its own."""

    estimate: Annotated[float, Field(description="Multiply it in once, and never the effect too.")]
    standard_error: Annotated[float, Field(description="Its standard error.")]


class Effect(Shape):
    """The best estimate of the change's effect."""

    estimate: Annotated[float, Field(description="Treatment minus control, best estimate.")]
    standard_error: Annotated[float, Field(description="Its spread.")]
    relative: Annotated[float | None, Field(description="By control's rate or mean.")]
    likelihood: Annotated[Likelihood | None, Field(description="Null on history.")]
    final: Annotated[bool, Field(description="True when it can change no more.")]
    trainable: Annotated[
        bool, Field(description="True when to train on it; false until reward_at, or if stopped.")
    ]
    reward_at: Annotated[str, Field(description="When it is final, unless decided later; UTC.")]


class Metric(Shape):
    """A metric in both arms."""

    metric: Annotated[str, Field(description="Its name.")]
    state: Annotated[
        str,
        Field(
            description="Of the target better, worse, unfair or not_known; of a guardrail breached,"
            " unharmed or not_known."
        ),
    ]
    control: Annotated[float | None, Field(description="Control's rate or mean.")]
    treatment: Annotated[float | None, Field(description="Treatment's.")]
    interval: Annotated[
        tuple[float, float] | None,
        Field(description="Where the true difference lies; looking often does no harm."),
    ]


class BaseMove(Shape):
    """The build in the place of the control: rebase, and post the new commit so."""

    on: Annotated[str, Field(description="The new base_commit.")]
    changes: Annotated[list[str], Field(description="The new commit's changes.")]
    continues: Annotated[bool, Field(description="Else register the new commit.")]


class Explanation(Shape):
    """The evidence behind a verdict, in at most a kilobyte."""

    experiment_id: Annotated[str, Field(description="The experiment.")]
    sentence: Annotated[str | None, Field(description="The evidence in at most two sentences.")]
    known: Annotated[str | None, Field(description="Lifts that the evidence already excludes.")]
    effect: Annotated[Effect | None, Field(description="Null where nothing was compared.")]
    metrics: Annotated[
        list[Metric], Field(description="The target, then guardrails. iterate: revise by these.")
    ]
    rebase: Annotated[BaseMove | None, Field(description="Null while there is a control.")]
    progress: Annotated[Progress, Field(description="Sessions so far, and those needed.")]
    warnings: Annotated[list[str], Field(description="Cautions that weaken the evidence.")]
    faults: Annotated[
        list[str] | None,
        Field(description="Failed set-up checks with their fixes; null if not readable."),
    ]
    left_out: Annotated[
        int, Field(description="Metrics, warnings and faults dropped to stay short.")
    ]


class PlannedLift(Shape):
    """The days that a size of lift takes."""

    relative_lift: Annotated[float, Field(description="Relative to control's rate.")]
    days_to_decide: Annotated[float, Field(description="Until 80 % of runs detect it.")]
    days_to_exclude_harm: Annotated[
        float, Field(description="Until a loss of that size is excluded where there is none.")
    ]


class Quicker(Shape):
    """Another design, with its days for a lift of 20 %."""

    change: Annotated[str, Field(description="What to do instead.")]
    days_to_decide: Annotated[float, Field(description="For a lift of 20 %.")]


class Plan(Shape):
    """How long a canary takes, in at most a kilobyte."""

    lifts: Annotated[list[PlannedLift], Field(description="By size; days of traffic.")]
    horizon_days: Annotated[int, Field(description="When an experiment ends in any case.")]
    smallest_lift_by_horizon: Annotated[
        float | None, Field(description="Relative; null where the traffic finds none by then.")
    ]
    quicker: Annotated[list[Quicker], Field(description="What you could do instead.")]


class SetUp(Shape):
    """The next step to wire a project, and its failed checks, in at most a kilobyte."""

    done: Annotated[int, Field(description="Lines of the checklist that are right.")]
    of: Annotated[int, Field(description="Lines in all.")]
    step: Annotated[str | None, Field(description="The line to do next; null when all is wired.")]
    seen: Annotated[str | None, Field(description="What the service saw.")]
    do: Annotated[str | None, Field(description="What to do.")]
    example: Annotated[str | None, Field(description="What to write, where it can be shown.")]
    red: Annotated[
        list[str], Field(description="Failed checks, each with its observation and its fix.")
    ]
    left_out: Annotated[int, Field(description="Failed checks dropped to stay short.")]
