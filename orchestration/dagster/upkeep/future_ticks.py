"""Future ticks: moves records of a clock that ran ahead back to the present.

Dagster reckons the next tick of a sensor or schedule from its last. After a last tick in the
future none comes until the clock has caught up with it, through every restart.
"""

from datetime import datetime

import dagster as dg

from orchestration.dagster.keys import PREFIX

# A clock that is set back by less has caught up before anybody misses a tick.
TOLERANCE_SECONDS = 30.0


def put_back_future_ticks(instance: dg.DagsterInstance, *, as_of: datetime) -> list[str]:
    """Moves future ticks of our sensors and schedules to the present, and returns their names."""
    now = as_of.timestamp()
    latest = now + TOLERANCE_SECONDS
    waited: list[str] = []
    for state in instance.all_instigator_state():
        if not state.instigator_name.startswith(f"{PREFIX}_"):
            continue
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, after=latest)
        for tick in ticks:
            present = tick.tick_data._replace(timestamp=now)
            instance.update_tick(tick._replace(tick_data=present))
        # Both kinds of data hold the times of the last tick, of the start and of the last look.
        data = state.instigator_data
        future = {
            name: now
            for name, value in (data._asdict() if data else {}).items()
            if name.endswith("_timestamp") and value is not None and value > latest
        }
        if data and future:
            instance.update_instigator_state(state.with_data(data._replace(**future)))
        if ticks or future:
            waited.append(state.instigator_name)
    return waited
