"""The fixtures of the service's own tests: other people's programs are run against a service."""

from tests.conftest import _shared, migrated_template, postgres_url, store, tenant

__all__ = ["_shared", "migrated_template", "postgres_url", "store", "tenant"]
