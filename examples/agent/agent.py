"""An agent that ships changes, waits for their verdicts, and learns which kind of change pays.

It needs Python alone. `workshop.py` stands for what makes and serves your builds; then:
    SERVICE_API_URL=… WRITE_KEY=wk_… SERVICE_PROJECT_KEY=rk_… python agent.py
"""

import json
import math
import os
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

ACTOR = "example-agent"
SHARE = 0.5
# An answer that has not come by then is not worth more traffic.
PATIENCE_SECONDS = 7 * 24 * 3600
# Relative: before anything is known a kind does nothing, give or take as much as changes do.
PRIOR_SPREAD = 0.01


class Workshop(Protocol):
    """What makes the changes: yours."""

    def make(self, kind: str) -> str:
        """Makes a change of a kind on the build that users have, and returns its commit."""
        ...

    def serve(self, commit: str, share: float) -> None:
        """Gives a commit to a share of the users, or to all; 0 takes it back."""
        ...


@dataclass(frozen=True, kw_only=True)
class Service:
    """The service's endpoints that the loop needs.

    Attributes:
        url: Its address.
        write_key: Records deploys.
        project_key: Registers and reads.
    """

    url: str
    write_key: str
    project_key: str

    def deploy(self, commit: str, *, base: str, share: float | None, at: float) -> str:
        """Records that a commit is served to a share of the users from now on, None for all."""
        body = {
            "commit": {"sha": commit, "actor": ACTOR},
            "diff": {"base_commit": base, "files": []},
            "allocation": share,
            "deployed_at": datetime.fromtimestamp(at, UTC).isoformat(),
        }
        return self._ask("/v1/deploys", body, key=self.write_key)[0]["deploy"]["deploy_id"]

    def register(self, deploy_id: str, metric: str) -> str:
        """Makes a deploy an experiment."""
        body = {"deploy_id": deploy_id, "target_metric": metric, "actor": ACTOR}
        return self._ask("/v1/reward/register", body)[0]["experiment_id"]

    def verdict(self, experiment: str) -> tuple[dict[str, Any], float | None]:
        """Returns the verdict, and in how many seconds the next can come; None where none will."""
        verdict, headers = self._ask(f"/v1/reward/{experiment}")
        wait = headers.get("Retry-After")
        return verdict, None if wait is None else float(wait)

    def effect(self, experiment: str) -> dict[str, Any] | None:
        """Returns the effect of a change; None before its first look."""
        try:
            effect, _ = self._ask(f"/v1/reward/{experiment}/effect")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise
        return effect

    def _ask(self, path: str, body: object = None, *, key: str | None = None) -> tuple[Any, Any]:
        request = urllib.request.Request(  # noqa: S310 - the address is yours
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Content-Type": "application/json",
                "X-Service-Project-Key": key or self.project_key,
            },
        )
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return json.load(response), response.headers


@dataclass(kw_only=True)
class Belief:
    """What the agent believes of a kind of change: a normal distribution of its mean effect."""

    precision: float = PRIOR_SPREAD**-2
    mean: float = 0.0

    def learn(self, estimate: float, standard_error: float) -> None:
        """Multiplies in the likelihood of a change, whose own spread counts beside its error.

        Args:
            estimate: Of the likelihood; the prior is in this belief already.
            standard_error: That of the estimate.
        """
        precision = 1 / (standard_error**2 + PRIOR_SPREAD**2)
        self.mean = (self.mean * self.precision + estimate * precision) / (
            self.precision + precision
        )
        self.precision += precision

    def drawn(self, chance: random.Random) -> float:
        """Draws an effect that may be (Thompson sampling)."""
        return chance.gauss(self.mean, math.sqrt(1 / self.precision))


@dataclass(kw_only=True)
class Agent:
    """Ships change after change.

    Attributes:
        service: Where it asks.
        workshop: What makes and serves its changes.
        base: The commit that users have.
        metric: What a change is to improve.
        beliefs: By kind of change.
        unlearned: The kinds of the changes whose effect may still change, by experiment.
        chance: Its randomness.
        sleep: How it waits.
        clock: The time, in seconds since the Unix epoch.
    """

    service: Service
    workshop: Workshop
    base: str
    metric: str
    beliefs: dict[str, Belief]
    unlearned: dict[str, str] = field(default_factory=dict)
    chance: random.Random = field(default_factory=random.Random)
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    def ship(self) -> dict[str, Any]:
        """Ships a change of the kind that promises most, and returns what came of it."""
        self.learn()
        kind = max(self.beliefs, key=lambda kind: self.beliefs[kind].drawn(self.chance))
        commit = self.workshop.make(kind)
        self.workshop.serve(commit, SHARE)
        deploy_id = self.service.deploy(commit, base=self.base, share=SHARE, at=self.clock())
        experiment = self.service.register(deploy_id, self.metric)
        verdict = self._awaited(experiment)
        self._act(commit, verdict)
        self.unlearned[experiment] = kind
        return {
            "kind": kind,
            "commit": commit,
            "experiment": experiment,
            "verdict": verdict["verdict"],
            "abstain_reason": verdict["abstain_reason"],
        }

    def learn(self) -> None:
        """Learns once from each change whose effect can change no more.

        Never from the verdict's own lift, which is read at a lucky moment, nor from the effect,
        which holds a prior already. A likelihood holds whoever ended its change, and to leave out
        the changes that were ended early would be a selection.
        """
        for experiment, kind in list(self.unlearned.items()):
            effect = self.service.effect(experiment)
            if effect is None or not effect["final"]:
                continue
            del self.unlearned[experiment]
            if likelihood := effect["likelihood"]:
                self.beliefs[kind].learn(likelihood["estimate"], likelihood["standard_error"])

    def _awaited(self, experiment: str) -> dict[str, Any]:
        """Polls as often as the service says that a new answer can come."""
        begun = self.clock()
        while True:
            verdict, wait = self.service.verdict(experiment)
            if verdict["power_state"]["decided"] or wait is None:
                return verdict
            if self.clock() - begun > PATIENCE_SECONDS:
                return verdict
            self.sleep(wait)

    def _act(self, commit: str, verdict: dict[str, Any]) -> None:
        """Does what the verdict asks for; without a verdict, users keep what they had."""
        if verdict["verdict"] == "keep":
            self.workshop.serve(commit, 1.0)
            self.service.deploy(commit, base=self.base, share=1.0, at=self.clock())
            self.base = commit
        else:
            self.workshop.serve(commit, 0.0)
            self.service.deploy(commit, base=self.base, share=0.0, at=self.clock())


def main(kinds: Sequence[str]) -> None:
    """Ships changes of these kinds until it is stopped, a line of JSON for each."""
    # Yours: how to make a change of a kind, and how to give it to a share of the users.
    import workshop  # noqa: PLC0415

    agent = Agent(
        service=Service(
            url=os.environ["SERVICE_API_URL"],
            write_key=os.environ["WRITE_KEY"],
            project_key=os.environ["SERVICE_PROJECT_KEY"],
        ),
        workshop=workshop,
        base=workshop.BASE,
        metric=workshop.METRIC,
        beliefs={kind: Belief() for kind in kinds},
    )
    while True:
        sys.stdout.write(json.dumps(agent.ship()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
