"""The fixtures of the service's own tests: metrics are measured by a real service."""

from tests.cli.conftest import command, served
from tests.conftest import _shared, migrated_template, postgres_url, service, store, tenant

__all__ = [
    "_shared",
    "command",
    "migrated_template",
    "postgres_url",
    "served",
    "service",
    "store",
    "tenant",
]
