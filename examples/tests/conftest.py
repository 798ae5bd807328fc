"""The fixtures of the service's own tests: recipes are run against a real service."""

from tests.conftest import _shared, migrated_template, postgres_url, service, store, tenant

__all__ = ["_shared", "migrated_template", "postgres_url", "service", "store", "tenant"]
