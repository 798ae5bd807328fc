"""The fixtures of the service's own tests: a Chromium, and a service with a store."""

from tests.browser.conftest import browser, chromium, new_context, page
from tests.conftest import migrated_template, postgres_url

__all__ = ["browser", "chromium", "migrated_template", "new_context", "page", "postgres_url"]
