"""The gauges of the whole service, read from the store and served to Prometheus."""

import asyncio
from collections.abc import Iterator
from functools import partial

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from api.runtime.store import Store
from storage.postgres.engine import StoreUnavailable
from storage.upkeep.gauges import TICK_STAGES, Gauges, read_gauges

# A monitor asks each 15 seconds or so, and perhaps several do.
_FRESH_SECONDS = 5.0
# Less than a monitor waits for the whole answer.
_PATIENCE_SECONDS = 3.0

# The name of each gauge, its help and the attribute that it shows. A gauge without a
# value is left out.
_SHOWN = (
    (
        "last_event_age_seconds",
        "Since the newest runtime event was received.",
        "last_event_seconds",
    ),
    (
        "unknown_commit_ratio",
        "Share of the newest events that name a commit which was never deployed.",
        "unknown_commit_share",
    ),
    (
        "last_walk_age_seconds",
        "Since a run of the pipeline, from events to verdicts, last ended.",
        "last_walk_seconds",
    ),
    (
        "walk_behind_seconds",
        "Closed and not yet in a verdict, for the open experiment that is furthest behind.",
        "walk_behind_seconds",
    ),
    (
        "verdict_overdue_seconds",
        "Since when the most overdue look of an open experiment with traffic is due.",
        "overdue_verdict_seconds",
    ),
    (
        "seconds_since_last_tick",
        "Since a tick of the fast schedule found nothing due, or a run of the pipeline ended well.",
        "last_tick_seconds",
    ),
    (
        "experiments_set_aside",
        "Experiments whose own data breaks a stage; all others go on.",
        "set_aside",
    ),
    ("open_experiments", "Experiments with a deploy and no decision.", "open_experiments"),
    (
        "unequal_days",
        "Days of the last 90 that, computed anew, were not equal to what stands.",
        "unequal_days",
    ),
    ("failed_runs", "Runs of Dagster that failed within the last hour.", "failed_runs"),
    ("undelivered_webhooks", "Webhooks that wait for an attempt.", "undelivered_webhooks"),
    (
        "undelivered_webhook_age_seconds",
        "Since the oldest of these was announced; 0 where there is none.",
        "oldest_undelivered_seconds",
    ),
    ("abandoned_webhooks", "Webhooks given up within the last day.", "abandoned_webhooks"),
    ("frozen", "Whether the service is frozen by hand.", "frozen"),
    ("database_bytes", "Disk that the database takes.", "database_bytes"),
    ("log_bytes", "Disk that the runtime events take, with their indexes.", "log_bytes"),
    (
        "unsealed_hours",
        "Hours of receipt that have ended and are in no file of the lake yet.",
        "unsealed_hours",
    ),
    ("sealing_failed", "Whether the last run of sealing ended in an error.", "sealing_failed"),
    ("lake_bytes", "What the listed files of the lake take.", "lake_bytes"),
    (
        "lake_wrong_files",
        "Files of the lake that are not as they are listed, and are not read.",
        "wrong_files",
    ),
    (
        "erasure_age_seconds",
        "Since the oldest erasure that is not written out of all files yet; 0 where there is none.",
        "oldest_erasure_seconds",
    ),
)


class StoreGauges:
    """Asks the store now and then, and never waits for it long."""

    def __init__(
        self,
        store: Store,
        *,
        fresh_seconds: float = _FRESH_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        """Asks nothing yet.

        Args:
            store: Where the gauges are read.
            fresh_seconds: For how long its answer, or its absence, is served again.
            patience_seconds: How long it may take.
        """
        self._store = store
        self._fresh, self._patience = fresh_seconds, patience_seconds
        self._asking = asyncio.Lock()
        self._due = 0.0
        self._gauges: Gauges | None = None

    async def exposition(self) -> bytes:
        """Returns the gauges in Prometheus's format; that the store is away is a gauge too."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Shown(await self._latest()))
        return generate_latest(registry)

    async def _latest(self) -> Gauges | None:
        # Whoever asks meanwhile waits for the same answer.
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if now >= self._due:
                self._gauges = await self._read()
                self._due = now + self._fresh
            return self._gauges

    async def _read(self) -> Gauges | None:
        read = partial(read_gauges, patience_seconds=self._patience)
        try:
            async with asyncio.timeout(self._patience):
                return await self._store.run(read)
        except (StoreUnavailable, TimeoutError):
            return None


class _Shown:
    """Gauges as the library collects them."""

    def __init__(self, gauges: Gauges | None) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[GaugeMetricFamily]:
        gauges = self._gauges
        yield _gauge("store_up", "Whether the store answered.", float(gauges is not None))
        if gauges is None:
            return
        for name, description, attribute in _SHOWN:
            if (value := getattr(gauges, attribute)) is not None:
                yield _gauge(name, description, value)
        steps = _gauge(
            "walk_step_seconds",
            "How long each step of the pipeline took the last time.",
            label="step",
        )
        for step, seconds in gauges.step_seconds.items():
            steps.add_metric([step], seconds)
        yield steps
        failed = _gauge(
            "failed_ticks",
            "Ticks of the fast schedule and steps of runs that an error ended, ever.",
            label="stage",
        )
        for stage in (*TICK_STAGES, *(gauges.failed_ticks.keys() - set(TICK_STAGES))):
            failed.add_metric([stage], gauges.failed_ticks.get(stage, 0))
        yield failed
        checks = _gauge(
            "check_failed", "Whether a check of Dagster's failed the last time.", label="check"
        )
        for check, is_failed in gauges.failed_checks.items():
            checks.add_metric([check], float(is_failed))
        yield checks


def _gauge(
    name: str, description: str, value: float | None = None, *, label: str | None = None
) -> GaugeMetricFamily:
    labels = None if label is None else [label]
    return GaugeMetricFamily(f"deploy_reward_{name}", description, value=value, labels=labels)
