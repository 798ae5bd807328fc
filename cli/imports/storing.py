"""The storing of a checked file: all of it in a single transaction, or nothing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time

from sqlalchemy import Engine

from cli.imports.experiments import ExperimentPlan
from cli.imports.rehearsal import ExperimentCount, judged
from cli.imports.spool import Spool
from storage.experiments.deploys import Receipt
from storage.log.events import copy_history, note_history, note_names, require_open_history
from storage.log.parts import next_part, note_part_of_days
from storage.schema.partitions import MOST_DAYS, write_past_days
from storage.tenants.settings import lock_project


@dataclass(frozen=True, kw_only=True)
class Storing:
    """Stores a spool of checked events, and the experiments of a plan."""

    engine: Engine
    plan: ExperimentPlan
    say: Callable[[str], None]

    def rehearse(self, spool: Spool) -> list[ExperimentCount]:
        """Returns how the experiments will be judged, and leaves nothing in the store."""
        with self.engine.connect() as connection:
            self.plan.require_named(connection, spool.tally)
        if not self.plan.experiments:
            return []
        self.say("Judging the experiments")
        return judged(self.engine, self.plan, spool)

    def store(self, spool: Spool) -> list[str]:
        """Stores events, deploys and registrations, and returns the experiments' ids."""
        tally = spool.tally
        moments = [
            (environment, min(last, datetime.combine(day, time(), tzinfo=UTC)))
            for environment, last in tally.last.items()
            for day in tally.days
        ]
        moments += tally.last.items()
        with self.engine.begin() as connection:
            # Its own transaction: to make a day holds up everybody else who makes a day.
            write_past_days(connection, tally.days, most_new=MOST_DAYS)
        with self.engine.begin() as connection:
            write_past_days(connection, tally.days, most_new=MOST_DAYS)
            require_open_history(connection, self.plan.project_id, moments)
            part = next_part(connection, tally.days)
            copy_history(connection, self._blocks(spool), part=part)
            note_part_of_days(connection, part, tally.days)
            note_names(connection, {self.plan.project_id: tally.events}, live=False)
            # Locked after the copy, so that no request waits for it: a registration meanwhile is
            # seen under the project's lock.
            receipt = Receipt(at=lock_project(connection, self.plan.project_id).at)
            require_open_history(connection, self.plan.project_id, moments)
            note_history(connection, self.plan.project_id, moments)
            plan = self.plan
            ids = plan.register(connection, tally, receipt) if plan.experiments else []
            # Last of all: the pipeline of all projects waits for it.
            receipt.receive(connection, plan.project_id, plan.named.environment)
            return ids

    def _blocks(self, spool: Spool) -> Iterator[bytes]:
        size, done = spool.size, 0
        for block in spool.blocks():
            self.say(f"Storing events: {done / size:.0%}")
            yield block
            done += len(block)
