"""Keys: apart from mistyped texts, stored as digests, ended at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from storage.tenants.keys import KeyKind, is_well_formed, key_digest, note_use
from storage.tenants.projects import create_project, list_keys, new_key


@pytest.mark.parametrize(
    ("kind", "prefix"), [(KeyKind.WRITE, "wk_"), (KeyKind.PUBLIC, "pk_"), (KeyKind.PROJECT, "rk_")]
)
def test_a_new_key_has_its_kind_s_prefix_and_forty_characters(kind, prefix) -> None:
    key = new_key(kind)
    assert key.startswith(prefix)
    assert len(key) == len(prefix) + 40
    assert key[3:].isalnum()
    assert is_well_formed(key)


@given(place=st.integers(0, 42), character=st.sampled_from("0Az9"))
def test_one_wrong_character_is_told_without_asking_the_store(place, character) -> None:
    key = new_key(KeyKind.WRITE)
    if key[place] != character:
        assert not is_well_formed(key[:place] + character + key[place + 1 :])


def test_a_key_is_nowhere_in_the_store(store) -> None:
    with store.engine.begin() as connection:
        project = create_project(connection, "shop")
        rows = connection.execute(text("SELECT k::text FROM keys AS k")).scalars().all()
    assert len(rows) == 3
    for key in project.keys.values():
        assert not any(key in row or key[8:] in row for row in rows)


def test_the_use_of_a_key_is_noted_once_in_ten_minutes(store) -> None:
    with store.engine.begin() as connection:
        project = create_project(connection, "shop")
    digest = key_digest(project.keys[KeyKind.PUBLIC])

    def noted() -> dict[KeyKind, object]:
        """When each key was used, after a transaction in which any of them was."""
        with store.engine.begin() as connection:
            note_use(connection, digest)
            result = list_keys(connection, project.project_id)
        return {each.kind: each.last_used_at for each in result}

    first = noted()
    assert first[KeyKind.PUBLIC] is not None
    assert first[KeyKind.WRITE] is first[KeyKind.PROJECT] is None
    assert noted() == first
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE keys SET last_used_at = last_used_at - interval '10 min'"))
    assert noted()[KeyKind.PUBLIC] > first[KeyKind.PUBLIC]
