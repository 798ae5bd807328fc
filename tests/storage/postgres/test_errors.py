"""Errors of the store: they name tables and constraints, and no value of a row."""

import traceback

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

CANARY = "canary@shop.example"


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("SELECT CAST(CAST(:value AS text) AS integer)", "invalid input syntax for type integer"),
        ("SELECT CAST(CAST(:value AS text) AS jsonb)", "invalid input syntax for type json"),
        ("INSERT INTO projects (name, settings) VALUES (:value, NULL)", '"settings"'),
    ],
)
def test_an_error_quotes_no_value_of_a_row(store, statement, named) -> None:
    with pytest.raises(DBAPIError) as failed, store.engine.begin() as connection:
        connection.execute(text(statement), {"value": CANARY})
    answer = "".join(traceback.format_exception(failed.value))
    assert named in answer
    assert CANARY not in answer
