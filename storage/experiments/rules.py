"""Rules: what a registration may ask for in its project."""

from collections.abc import Mapping

from domain.lineage.flag import Flag
from domain.metric import Metric, metric_definition
from domain.registration import Registration
from storage.experiments.policy import SINGLE
from storage.postgres.refusal import Conflict, Invalid, Locked
from storage.tenants.settings import Lockable, Settings


def chosen_members(settings: Settings, request: Registration) -> Mapping[Lockable, bool]:
    """Returns whether a registration chooses each of the members that a project may lock."""
    metric = request.target_metric
    return {
        "target_metric": metric is not None and metric != settings.default_metric,
        # A registration that names some adds them; the empty list asks for none at all.
        "guardrails": request.guardrails is not None
        and not request.guardrails
        and bool(settings.guardrails),
        "routes": request.routes is not None,
        "control_commit": request.control_commit is not None,
        "value": request.value_per_conversion is not None,
    }


def require_unlocked(settings: Settings, chosen: Mapping[Lockable, bool]) -> None:
    """Refuses a request that chooses a member which the project's settings lock."""
    for member in settings.locked:
        if chosen.get(member):
            raise Locked(
                "locked",
                f"the project's setting `locked` keeps {member} for the project: leave it out, or"
                " change the setting",
            )


def require_control(settings: Settings, flag: Flag | None, *, of: str) -> None:
    """Refuses a flag without a control value where the service hands out both, or checks them."""
    if flag is None or flag.control is not None:
        return
    if settings.ofrep != "off" or settings.verified_draws:
        raise Invalid(
            "control_unnamed",
            "name the value that control has: the project's settings `ofrep` and `verified_draws`"
            " hand out a flag's values, or check them, so both must be known",
            pointer=f"{of}/control",
        )


def require_target(settings: Settings, name: str, value: float | None) -> None:
    """Refuses several thresholds, a value of a metric without any, or a loss by what is better.

    The events of a ratio are over others, not a unit's.
    """
    if len(settings.metrics.get(name, Metric()).thresholds) > 1:
        raise Conflict("no_threshold", f"{name}: {SINGLE}")
    if value is None:
        return
    definition = metric_definition(name, settings.metrics)
    pointer = "/target_metric/value_per_conversion"
    if definition.kind == "ratio":
        raise Invalid(
            "ratio_has_no_value",
            "a ratio counts events over other events, so none of them has a value: leave it out",
            pointer=pointer,
        )
    if value < 0 and definition.better == "higher":
        raise Invalid(
            "negative_value",
            f"of {name} more is better, so that no event of it costs: name what one brings, from 0"
            " on; a metric of which less is better may have a value below 0",
            pointer=pointer,
        )
