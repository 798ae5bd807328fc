"""The shapes that the tools take and give: the REST models of the reward endpoints."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

ExperimentId = Annotated[
    str, Field(min_length=1, max_length=128, description="Identifier given by register_experiment.")
]


class Shape(BaseModel):
    """A JSON object with exactly the members it names."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TargetMetric(Shape):
    """A metric with the worth of one conversion, which makes `value_at_risk` known."""

    name: Annotated[str, Field(min_length=1, description="The metric: an event's name.")]
    value_per_conversion: Annotated[
        float, Field(allow_inf_nan=False, description="Dollars that one conversion is worth.")
    ]


class TreatmentFlag(Shape):
    """A change behind a feature flag: one build, two behaviours."""

    name: Annotated[str, Field(min_length=1, description="The flag's name.")]
    treatment: Annotated[str | bool, Field(description="Its value in the treatment arm.")]
    control: Annotated[str | bool, Field(description="Its value in the control arm.")]


class Registered(Shape):
    """The answer to a registration."""

    experiment_id: Annotated[str, Field(description="Pass this to get_verdict.")]


class PowerState(Shape):
    """Whether the verdict is final."""

    clock: Annotated[
        Literal["open", "decided"], Field(description="open: still running; decided: final.")
    ]
    decided: Annotated[bool, Field(description="True when the verdict is final.")]


class Verdict(Shape):
    """The verdict contract: ten members, in this order."""

    experiment_id: str
    lift: Annotated[
        float | None,
        Field(description="Treatment minus control conversion rate; null while abstaining."),
    ]
    confidence: Annotated[
        float | None,
        Field(description="1 minus the running-minimum always-valid p-value; or null."),
    ]
    ci: Annotated[
        tuple[float, float] | None,
        Field(description="Always-valid interval of the lift; null while abstaining."),
    ]
    verdict: Annotated[
        Literal["keep", "rollback", "iterate", "abstain"],
        Field(description="keep: ship. rollback: revert. iterate: revise. abstain: wait or log."),
    ]
    abstain_reason: Annotated[
        Literal["power", "non_identifiable", "interacting"] | None,
        Field(description="Why there is no verdict; null unless verdict is abstain."),
    ]
    value_at_risk: Annotated[
        float | None,
        Field(description="Dollars a day, signed; null without a value per conversion."),
    ]
    cadence: Annotated[
        Literal["day", "fast"] | None, Field(description="Which of the two cadences closes it.")
    ]
    power_state: PowerState
    guardrail_breaches: Annotated[
        list[str], Field(description="Guardrail metrics that the treatment harmed.")
    ]


class Experiments(BaseModel):
    """The open experiments of the project, as the service lists them."""

    experiments: list[dict[str, object]]


class Progress(Shape):
    """How far the traffic has come."""

    accumulated: int | float | None
    required: int | float | None
    per_day: int | float | None
    projected_decision_at: str | None


class Explanation(Shape):
    """What is behind a verdict, in at most one kilobyte."""

    experiment_id: str
    sentence: Annotated[str | None, Field(description="What the evidence says.")]
    known: Annotated[str | None, Field(description="What the evidence already excludes.")]
    progress: Progress
    warnings: list[str]
    faults: Annotated[
        list[str] | None,
        Field(description="What is wired wrong, with its fix; null when it could not be read."),
    ]
    left_out: Annotated[int, Field(description="Warnings and faults dropped to stay short.")]


class Checklist(Shape):
    """Whether the project is wired right, in at most one kilobyte."""

    red: Annotated[
        list[str], Field(description="What is wrong, each with what was seen and the fix.")
    ]
    waiting: Annotated[list[str], Field(description="What cannot be judged yet.")]
    green: Annotated[list[str], Field(description="What is right.")]
    left_out: Annotated[int, Field(description="Lines dropped to stay short.")]
