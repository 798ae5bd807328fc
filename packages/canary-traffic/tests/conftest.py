"""The fixtures of the service's own tests: traffic is sent to a real service."""

from tests.conftest import migrated_template, postgres_url, service, store

__all__ = ["migrated_template", "postgres_url", "service", "store"]
