"""What the API counts about itself, for Prometheus; no label names a project."""

from prometheus_client import CollectorRegistry, Counter, Histogram


class Meters:
    """The counters of one process."""

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
            "Runtime events received: accepted ones, of these the late ones, and rejected ones.",
            ["outcome"],
            registry=self.registry,
        )
        self.commit_seconds = Histogram(
            "deploy_reward_commit_seconds",
            "Time from a valid batch of runtime events to its commit.",
            registry=self.registry,
        )
