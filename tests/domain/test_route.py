"""Routes: paths find their patterns."""

import pytest

from domain.route import RouteTable, canonical_route

PATTERNS = [
    "/",
    "/websites/[websiteId]",
    "/websites/[websiteId]/[...rest]",
    "/websites/new",
    "/api/[[...slug]]",
    "/(main)/settings",
    "/users/:id",
    "/teams/{id}/members",
]


@pytest.mark.parametrize(
    ("route", "pattern"),
    [
        ("/", "/"),
        ("/websites/42", "/websites/[websiteId]"),
        ("/websites/[websiteId]", "/websites/[websiteId]"),
        ("/websites/42/", "/websites/[websiteId]"),
        ("/websites/42?tab=a#b", "/websites/[websiteId]"),
        ("/websites/new", "/websites/new"),
        ("/websites/42/events/7", "/websites/[websiteId]/[...rest]"),
        ("/api", "/api/[[...slug]]"),
        ("/api/a/b", "/api/[[...slug]]"),
        ("/settings", "/settings"),
        ("/users/7", "/users/:id"),
        ("/teams/7/members", "/teams/{id}/members"),
        ("/teams/7", None),
        ("/nowhere", None),
    ],
)
def test_a_path_finds_the_most_specific_pattern(route, pattern) -> None:
    assert RouteTable(PATTERNS).match(route) == pattern


def test_a_literal_beats_a_parameter_at_the_first_segment_where_patterns_differ() -> None:
    table = RouteTable(["/[tenant]/settings", "/app/[page]", "/[...all]"])
    assert table.match("/app/settings") == "/app/[page]"
    assert table.match("/acme/settings") == "/[tenant]/settings"
    assert table.match("/acme/other") == "/[...all]"


def test_a_dot_in_a_pattern_is_a_dot() -> None:
    assert RouteTable(["/robots.txt"]).match("/robotsxtxt") is None


def test_route_groups_leave_no_trace() -> None:
    assert canonical_route("/(shop)/(eu)/cart/") == "/cart"
