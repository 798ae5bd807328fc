"""Whole days by the lake's engines, as the steps and the day check of a run ask for them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from storage.lake.day_engines import DayEngineSettings, day_engine_settings, past_files
from storage.pipeline.catching_up import catch_up
from storage.schema.past_log import PastFiles


@dataclass(frozen=True, kw_only=True)
class LakeDays:
    """Whole days by the engine of some settings; without any, by that of the environment."""

    settings: DayEngineSettings = field(default_factory=day_engine_settings)

    def catch_up(self, connection: Connection, *, as_of: datetime, only: Sequence[str]) -> int:
        """Computes the experiments that are far behind; returns how many exposures are new."""
        return catch_up(connection, as_of=as_of, only=only, settings=self.settings)

    def past_files(self, connection: Connection) -> AbstractContextManager[PastFiles]:
        """Opens the past log in its files."""
        return past_files(connection)
