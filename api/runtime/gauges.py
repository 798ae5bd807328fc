"""The gauges of the whole service, read from the store and served to Prometheus."""

import asyncio
from collections.abc import Callable, Iterator
from typing import get_type_hints

from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from sqlalchemy import Connection

from api.runtime.recent import Recent
from api.runtime.store import Store
from storage.postgres.engine import StoreUnavailable

# Reads gauges as annotated members, within a limit of seconds.
ReadGauges = Callable[[Connection, float], Struct]

# A monitor asks each 15 seconds or so, and perhaps several do.
_FRESH_SECONDS = 5.0
# Less than a monitor waits for the whole answer.
_PATIENCE_SECONDS = 3.0


class StoreGauges:
    """Asks the store now and then, and never waits for it long."""

    def __init__(
        self,
        store: Store,
        read: ReadGauges,
        *,
        fresh_seconds: float = _FRESH_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self._store, self._read, self._patience = store, read, patience_seconds
        self._recent = Recent[None, bytes](fresh_seconds)

    async def exposition(self) -> bytes:
        """Returns the gauges in Prometheus's format; that the store is away is a gauge too."""
        return await self._recent.read(None, self._exposed)

    async def _exposed(self) -> bytes:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Shown(await self._gauges()))
        return generate_latest(registry)

    async def _gauges(self) -> Struct | None:
        try:
            async with asyncio.timeout(self._patience):
                return await self._store.run(
                    lambda connection: self._read(connection, self._patience)
                )
        except (StoreUnavailable, TimeoutError):
            return None


class _Shown:
    """Gauges as the library collects them."""

    def __init__(self, gauges: Struct | None) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[GaugeMetricFamily]:
        gauges = self._gauges
        yield _gauge("store_up", "Whether the store answered.", float(gauges is not None))
        if gauges is None:
            return
        for name, declared in get_type_hints(type(gauges), include_extras=True).items():
            value, (meta,) = getattr(gauges, name), declared.__metadata__
            if meta.extra is not None:
                family = _gauge(name, meta.description, label=meta.extra["label"])
                for entry, figure in value.items():
                    family.add_metric([entry], float(figure))
                yield family
            elif value is not None:
                yield _gauge(name, meta.description, value)


def _gauge(
    name: str, description: str, value: float | None = None, *, label: str | None = None
) -> GaugeMetricFamily:
    labels = None if label is None else [label]
    return GaugeMetricFamily(f"deploy_reward_{name}", description, value=value, labels=labels)
