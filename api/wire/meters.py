"""The API's own metrics, for Prometheus; no label names a project."""

import os

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

# Where workers of a service count in files that each of them can read. The library looks at it
# when it is first imported.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class Meters:
    """The counters of a process; counters and histograms only, which add up over processes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "deploy_reward_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "deploy_reward_request_seconds",
            "Time to answer a request.",
            ["route"],
            registry=self.registry,
        )
        self.events = Counter(
            "deploy_reward_runtime_events",
            "Runtime events received: accepted ones, of these the late ones, rejected ones, and"
            " those outside the sample.",
            ["outcome"],
            registry=self.registry,
        )
        self.accepted, self.late, self.rejected, self.sampled_out = (
            self.events.labels(outcome)
            for outcome in ("accepted", "late", "rejected", "sampled_out")
        )
        self.assignments = Counter(
            "deploy_reward_assignments",
            "Tokens of signed assignments that events brought: whether they hold.",
            ["outcome"],
            registry=self.registry,
        )
        self.valid_tokens, self.invalid_tokens = (
            self.assignments.labels(outcome) for outcome in ("valid", "invalid")
        )
        self.commit_seconds = Histogram(
            "deploy_reward_commit_seconds",
            "Time from a valid batch of runtime events to its commit.",
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        """Returns the counts of all workers of the service, the dead ones included."""
        if SHARED_FOLDER not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)
        return generate_latest(together)
