"""Future ticks: moves records of a clock that ran ahead back to the present.

Dagster reckons the next tick of a sensor or schedule from its last one. After a last tick in the
future none comes until the clock has caught up with it, through every restart.
"""

from datetime import datetime

import dagster as dg

# Dagster has no public names for what its public methods return here.
from dagster._core.scheduler.instigation import InstigatorState, InstigatorTick

from orchestration.dagster.keys import PREFIX

# A clock that is set back by less has caught up before anybody misses a tick.
TOLERANCE_SECONDS = 30.0


def put_back_future_ticks(instance: dg.DagsterInstance, *, as_of: datetime) -> list[str]:
    """Moves ticks of our sensors and schedules that lie in the future to the present.

    Args:
        instance: Dagster's; what others keep in it is left as it is.
        as_of: Now.

    Returns:
        The names of the sensors and schedules that waited.
    """
    return [
        state.instigator_name
        for state in instance.all_instigator_state()
        if state.instigator_name.startswith(f"{PREFIX}_")
        and _put_back(instance, state, as_of.timestamp())
    ]


def _put_back(instance: dg.DagsterInstance, state: InstigatorState, now: float) -> bool:
    latest = now + TOLERANCE_SECONDS
    ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, after=latest)
    for tick in ticks:
        instance.update_tick(InstigatorTick(tick.tick_id, tick.tick_data._replace(timestamp=now)))
    data = state.instigator_data
    if data is None:
        return bool(ticks)
    # Both kinds hold the times of the last tick, of the start and of the last look.
    future = {
        name: now
        for name, value in data._asdict().items()
        if name.endswith("_timestamp") and value is not None and value > latest
    }
    if future:
        instance.update_instigator_state(state.with_data(data._replace(**future)))
    return bool(ticks or future)
