"""Check results: which days equal the log, which experiments differ, and what other checks say."""

from collections.abc import Collection, Sequence
from datetime import date

from sqlalchemy import Connection, text

from storage.verdicts.next_look import forget_next_looks

_NAMED = text("SELECT experiments FROM self_checks WHERE day = :day")
_CHECKED = text("""
INSERT INTO self_checks (day, equal, experiments, checked_at)
VALUES (:day, :equal, :experiments, clock_timestamp())
ON CONFLICT (day) DO UPDATE
SET equal = excluded.equal, experiments = excluded.experiments, checked_at = excluded.checked_at
""")


def note_self_check(
    connection: Connection,
    *,
    day: date,
    equal: bool | None,
    unequal: Collection[str] = (),
    swapped: Collection[str] = (),
) -> None:
    """Keeps whether a day computed anew equals the served rows; None: unknown. The last counts."""
    before = set(connection.execute(_NAMED, {"day": day}).scalar_one_or_none() or ())
    connection.execute(_CHECKED, {"day": day, "equal": equal, "experiments": sorted(unequal)})
    cured = {*before, *swapped} - {*unequal}
    forget_next_looks(connection, sorted(before | cured | {*unequal}))
    _forget_published(connection, sorted(cured))


_RESULT = text("""
INSERT INTO check_results (name, passed, checked_at) VALUES (:name, :passed, clock_timestamp())
ON CONFLICT (name) DO UPDATE SET passed = excluded.passed, checked_at = excluded.checked_at
""")


def note_check(connection: Connection, *, name: str, passed: bool) -> None:
    """Keeps the last result of a check that is not of a day."""
    connection.execute(_RESULT, {"name": name, "passed": passed})


_REBUILT = text("""
UPDATE self_checks
SET equal = NOT experiments && :unequal, checked_at = clock_timestamp(),
    experiments = ARRAY(SELECT unnest(experiments) INTERSECT SELECT unnest(:unequal))
WHERE NOT equal
""")


def note_rebuilt(connection: Connection, *, unequal: Collection[str]) -> None:
    """Keeps that a rebuild made all days equal to the log, but for some experiments."""
    connection.execute(_REBUILT, {"unequal": sorted(unequal)})
    _forget_published(connection, None)


_FORGET_PUBLISHED = text("""
UPDATE publication_progress AS p SET published_to = NULL
FROM verdicts AS v
WHERE v.experiment_id = p.experiment_id AND NOT v.decided
  AND (CAST(:ids AS text[]) IS NULL OR p.experiment_id = ANY(CAST(:ids AS text[])))
""")


def _forget_published(connection: Connection, ids: Sequence[str] | None) -> None:
    """Has `ids`, or by None all, computed at once from repaired rows, whatever look is served."""
    connection.execute(_FORGET_PUBLISHED, {"ids": None if ids is None else list(ids)})
