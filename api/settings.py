"""What one API process is told at its start."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from storage.secret import service_secret


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    """Where the store is, and what the API needs besides it."""

    database_url: str = field(repr=False)
    secret: bytes = field(repr=False)
    # The address that users see, for links; by default that of each request.
    public_url: str | None = None
    # Rate limits shared by all workers; by default each worker counts for itself.
    redis_url: str | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls) -> Self:
        """Returns the settings of the `SERVICE_*` variables.

        Raises:
            ValueError: A variable that must be set is not; the message names it.
        """
        database_url = os.environ.get("SERVICE_DATABASE_URL")
        if not database_url:
            raise ValueError("SERVICE_DATABASE_URL is not set: name a PostgreSQL database")
        data_dir = os.environ.get("SERVICE_DATA_DIR")
        return cls(
            database_url=database_url,
            secret=service_secret(Path(data_dir).expanduser() if data_dir else None),
            public_url=os.environ.get("SERVICE_PUBLIC_URL") or None,
            redis_url=os.environ.get("SERVICE_REDIS_URL") or None,
        )
