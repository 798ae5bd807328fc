"""Own splits: how often a night's random splits of a project's own traffic showed an effect."""

from datetime import date
from typing import Annotated, Literal

from msgspec import Meta

from domain.document import Document

# The cluster that a split keeps together. A split by unit checks the test; the others check what
# a router may have kept together, and the places that serve.
By = Literal["unit", "user", "pod", "hour"]
_REMEDIES: dict[By, str] = {
    "unit": "The test errs on this traffic: tell us, with `deploy-reward audit`.",
    "user": "Visitors are alike in what they do: set the project's `unit` to `user`.",
    "pod": "What this place serves differs from the others: look at it before you blame a build.",
    "hour": "",
}


class SplitResult(Document, frozen=True, kw_only=True):
    """The splits of a kind, on a metric."""

    by: By
    metric: str
    splits: int
    answers: Annotated[int, Meta(description="Splits that showed an effect; there is none.")]
    low: Annotated[float, Meta(description="The exact 95 % interval of their share.")]
    high: float
    worst: Annotated[str | None, Meta(description="The pod that differs most.")] = None


class OwnSplits(Document, frozen=True, kw_only=True):
    """The splits of a project's control of the week before a night."""

    night: date
    experiment_id: str
    unit: str
    units: int
    alpha: float
    salt: str
    results: tuple[SplitResult, ...]

    @property
    def wrong(self) -> tuple[SplitResult, ...]:
        """Those that showed more than the test may; an hour's traffic is alike by its nature."""
        return tuple(each for each in self.results if each.low > self.alpha and each.by != "hour")

    @property
    def sentences(self) -> list[str]:
        """The answers, a sentence for each kind and metric."""
        return [self._sentence(each) for each in self.results]

    def _sentence(self, result: SplitResult) -> str:
        by = self.unit if result.by == "unit" else result.by
        place = f", most of all in {result.worst}" if result.worst and result in self.wrong else ""
        many = f"{result.answers} of {result.splits} splits by {by}"
        return f"{many} showed an effect on {result.metric}{place}"

    @property
    def remedy(self) -> str:
        """The remedy of the first kind that is wrong; empty where none is."""
        return _REMEDIES[self.wrong[0].by] if self.wrong else ""
