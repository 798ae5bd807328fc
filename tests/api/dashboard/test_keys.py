"""The keys' page: a new key is shown once and works, and a revoked key ends."""

import re
from typing import Any

import pytest

from tests.clients.owner import KEYS, SCRIPT, Owner, alert, filled, forms


def create(owner: Owner, kind: str, **members: str) -> Any:
    """Sends the form of a new key, the last of its page, as a browser does."""
    page = owner.page(KEYS)
    return owner.post(KEYS, {**filled(page, len(forms(page)) - 1), "kind": kind, **members})


class TestKeys:
    @pytest.mark.parametrize(
        ("kind", "use"),
        [
            ("write", r"/v1/deploys \\\n  -H &#34;X-Service-Project-Key: {}&#34;"),
            ("public", r"/sdk\.js&#34;\s+data-key=&#34;{}&#34;"),
            ("project", r"/v1/reward/register \\\n  -H &#34;X-Service-Project-Key: {}&#34;"),
        ],
    )
    def test_a_new_key_stands_in_the_first_request_to_send_with_it(self, owner, kind, use) -> None:
        text = create(owner, kind).text
        (key,) = set(re.findall(r"<code>([wpr]k_\w{40})</code>", text))
        assert re.search(use.format(key), text)

    def test_a_form_that_is_sent_again_makes_no_second_key_and_shows_none(self, owner) -> None:
        page = owner.page(KEYS)
        form = {**filled(page, len(forms(page)) - 1), "kind": "project"}
        made = owner.post(KEYS, form)
        (key,) = re.findall(r"<code>(rk_\w{40})</code>", made.text)
        before = owner.all_keys()
        for _ in range(2):
            again = owner.post(KEYS, form)
            assert again.status_code == 409
            assert "sent again, as a reload does, makes none" in alert(again.text)
            assert key not in again.text
        assert owner.all_keys() == before
        # The page that says so holds a form that makes a key; a key that ends is no hindrance.
        form = {**filled(again.text, len(forms(again.text)) - 1), "kind": "project"}
        assert owner.post(KEYS, {"action": "revoke", "key": key[:8]}).status_code == 303
        assert owner.post(KEYS, form).status_code == 200
        assert len(owner.all_keys()) == len(before) + 1
        assert create(owner, "write", seen="").status_code == 409

    def test_a_kind_is_chosen_from_those_that_there_are(self, owner) -> None:
        before = owner.all_keys()
        for kind in ("", "admin", SCRIPT):
            answer = owner.post(KEYS, {"action": "create", "kind": kind})
            assert answer.status_code == 422
            assert "Choose what the key is for" in alert(answer.text)
            assert SCRIPT not in answer.text
        assert owner.all_keys() == before

    def test_no_key_is_revoked_but_one_that_was_shown(self, owner) -> None:
        for key in owner.all_keys()[1:]:
            assert owner.post(KEYS, {"action": "revoke", "key": key.display}).status_code == 303
        (last,) = (key for key in owner.all_keys() if key.revoked_at is None)
        for each in ("", last.display[:3], last.display[:7], "wk_%_%__", SCRIPT):
            assert owner.post(KEYS, {"action": "revoke", "key": each}).status_code == 422
        gone = owner.all_keys()[-1].display
        assert owner.post(KEYS, {"action": "revoke", "key": gone}).status_code == 409
        assert [key.display for key in owner.all_keys() if key.revoked_at is None] == [last.display]
