"""The sensor that delivers announcements of verdicts to the projects' webhooks."""

import dagster as dg

from orchestration.dagster.keys import PREFIX
from orchestration.dagster.resources import Store
from storage.postgres.data_dir import default_data_dir


@dg.sensor(
    name=f"{PREFIX}_webhooks",
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Each half minute: delivers what was announced, new or again, in the tick itself."
    " Launches no run; each tick says what it did.",
)
def webhooks(store: Store) -> dg.SkipReason:
    """Delivers due announcements; a tick with nothing due is two small queries."""
    from orchestration.outbound.delivery import deliver
    from storage.releases.freeze import current_freeze
    from storage.tenants.secret import written_secret
    from storage.tenants.store_secret import store_secret

    secret = written_secret(default_data_dir())
    with store.reading() as connection:
        freeze = current_freeze(connection)
        if secret is not None:
            store_secret(connection, default_data_dir(), make=False)
    if freeze is not None:
        return dg.SkipReason(f"frozen since {freeze.frozen_at:%Y-%m-%d %H:%M} UTC")
    done = deliver(store.engine, secret=secret)
    return dg.SkipReason(done.as_text() or "nothing to deliver")
