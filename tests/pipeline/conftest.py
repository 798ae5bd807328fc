"""A story: the world of a test of the pipeline, and the names of strata in it."""

from collections.abc import Callable

import pytest

from domain.lineage.flag import stratum_name
from tests.world import ON_ORDERS, World


@pytest.fixture
def story(service) -> World:
    """A project whose keeps wait for no guardrail, unless the test names some."""
    service.settings(locked=[])
    service.registration = ON_ORDERS
    return service


@pytest.fixture
def stratum() -> Callable[..., str]:
    """The name of the stratum of these changes."""
    return lambda *changes: stratum_name(changes)
