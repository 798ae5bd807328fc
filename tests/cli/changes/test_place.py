"""`place`: a change asks for its turn from a shell, waits for it, and gives it back."""

import json

from sqlalchemy import text


def test_a_shell_asks_waits_until_a_timeout_and_leaves_with_the_code_of_what_to_do(
    stored, command
) -> None:
    stored.settings(flag_places=1)
    stored.deploy("aaaaaaa")
    asked = command("place", "--flag", "cart=true", "--change", "#1", "-p", "shop", "--json")
    placed = json.loads(asked.stdout)
    assert (asked.exit_code, placed["state"], placed["change"]) == (0, "placed", "#1")
    waiting = ("place", "--flag", "search=true", "-p", "shop", "--until", "placed")
    late = command(*waiting, "--timeout", "0")
    assert (late.exit_code, late.stdout.partition(": ")[2]) == (
        14,
        "search waits for a place, as number 1.\n",
    )
    given_back = command("place", "--end", placed["place_id"], "-p", "shop")
    assert (given_back.exit_code, given_back.stdout.endswith("was given back.\n")) == (0, True)
    assert command(*waiting).exit_code == 0
    for outcome, code in (("keep", 0), ("rollback", 10), ("given_back", 12)):
        end = text(f"UPDATE places SET ended_at = asked_at, outcome = '{outcome}'")
        stored.in_store(lambda connection, end=end: connection.execute(end))
        assert command(*waiting).exit_code == code
    # The experiment of the flag is open, as nothing closed it: its place is taken.
    assert command(*waiting, "--again", "--timeout", "0").exit_code == 14
