"""A registration: a request to measure a change on a target metric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domain.lineage.flag import Flag

# The environment that a registration means where it names no deploy.
PRODUCTION = "production"
# Until the target can be looked at, a guardrail alone can say something: an hour is soon enough to
# ask again, where asking each minute would be 20,160 times for a metric of fourteen days.
GUARDRAIL_PACE_SECONDS = 3600
# The member of the metadata that makes an experiment a portfolio, where it is true.
PORTFOLIO = "portfolio"


@dataclass(frozen=True, kw_only=True)
class Registration:
    """A registration as requested, its form checked; absent members take their defaults."""

    deploy_id: str | None = None
    treatment_commit: str | None = None
    target_metric: str | None = None
    value_per_conversion: float | None = None
    control_commit: str | None = None
    treatment_flag: Flag | None = None
    routes: Sequence[str] | None = None
    guardrails: Sequence[str] | None = None
    metadata: Mapping[str, Any] | None = None
    # Who, or which agent, asks.
    actor: str | None = None
    # Whose deploys are meant where none is named.
    environment: str = PRODUCTION

    @property
    def is_portfolio(self) -> bool:
        """Whether it compares the standing build with a hold-back."""
        return self.metadata is not None and self.metadata.get(PORTFOLIO) is True
