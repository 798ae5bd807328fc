"""What the blocks' units add up to, against a recount of every exposure, at every look."""

import random
from datetime import timedelta

import pytest
from sqlalchemy import text

from storage.verdicts.gates import returning_users
from tests.repetition import also_nightly
from tests.world import T

CONTROL, TREATMENT = "c" * 40, "a" * 40
MINUTES = 60

_RECOUNT = text("""
SELECT count(*) AS users, count(*) FILTER (WHERE arms = 1) AS faithful
FROM (
    SELECT count(DISTINCT arm) AS arms FROM exposures
    WHERE experiment_id = :id AND pseudonym IS NOT NULL AND arm IN ('treatment', 'control')
      AND block + interval '7 minutes' <= :look
    GROUP BY pseudonym
    HAVING count(*) >= 2
) AS users
""")
_ARMS = text("""
SELECT block, count(*) FILTER (WHERE arm = 'treatment') AS treatment,
    count(*) FILTER (WHERE arm = 'control') AS control,
    count(*) FILTER (WHERE arm = 'partial') AS partial,
    count(*) FILTER (WHERE arm = 'in_flight') AS in_flight,
    count(*) FILTER (WHERE arm = 'excluded') AS excluded,
    count(*) FILTER (WHERE arm = 'warming') AS warming,
    count(*) FILTER (WHERE commit_sha = :treatment AND arm IN ('treatment', 'control')) AS own
FROM exposures WHERE experiment_id = :id GROUP BY block ORDER BY block
""")
_KEPT = text("""
SELECT block, treatment, control, partial, in_flight, excluded, warming, own
FROM block_units WHERE experiment_id = :id ORDER BY block
""")


@pytest.mark.parametrize("every", also_nightly([20], [5, 200]))
def test_users_who_came_back_are_counted_at_each_look_whatever_the_rhythm_of_ticks(
    story, every
) -> None:
    draw = random.Random(5)
    story.deploy(CONTROL, minutes=-60)
    story.deploy(TREATMENT, minutes=0, base=CONTROL, allocation=0.5)
    for _ in range(120):
        # Few users with many sessions each: some keep their arm, most come to see both.
        user = draw.randrange(30)
        commit = TREATMENT if (user % 3 == 0 or draw.random() < 0.5) else CONTROL
        story.units_of(
            commit, minutes=draw.uniform(-5, MINUTES), units=1, user_ref=f"u{user}", route="/"
        )
    story.send()
    experiment = story.register()
    for minutes in range(every, MINUTES + 120 + every, every):
        story.tick(minutes=minutes)

    with story.store.engine.begin() as connection:
        for minutes in range(10, MINUTES + 30, 5):
            look = T + timedelta(minutes=minutes + 2)
            told = returning_users(connection, [(experiment, look)])[experiment]
            row = connection.execute(_RECOUNT, {"id": experiment, "look": look}).one()
            assert (told.users, told.faithful) == (row.users, row.faithful)
        assert 0 < row.faithful < row.users
        asked = {"id": experiment, "treatment": TREATMENT}
        kept = connection.execute(_KEPT, {"id": experiment}).all()
        assert kept == connection.execute(_ARMS, asked).all()
