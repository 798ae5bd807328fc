"""A router's token vouches for a session, build and environment of a project, and no more."""

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from storage.postgres.refusal import Invalid
from storage.tenants.secret import Assignments, assignment_message, assignment_token
from tests.clients.page import example

PAGE = Path(__file__).parents[3] / "docs" / "public-key.md"
SERVED = {"session_id": "s-1", "commit": "4f2a9c1d", "environment": "production"}


def token(tenant: Any, *, epoch: int = 1, project_id: int | None = None, **members: Any) -> str:
    key = Assignments(b"a secret of the tests, long enough").key(
        project_id or tenant.project_id, epoch
    )
    return assignment_token(key, assignment_message(**{**SERVED, **members}))


def stored(tenant: Any) -> list[bool]:
    """Whether each stored event is signed, in the order in which they occurred."""
    with tenant.store.engine.connect() as connection:
        rows = connection.execute(
            text("SELECT signed FROM runtime_events WHERE project_id = :id ORDER BY event"),
            {"id": tenant.project_id},
        )
        return list(rows.scalars())


@pytest.fixture
def metered(tenant) -> Callable[[], dict[str, float]]:
    """How many assignments the service has judged since the test began."""

    def judged() -> dict[str, float]:
        answer = tenant.client.get("/metrics").text
        result = re.findall(r'deploy_reward_assignments_total\{outcome="(\w+)"\} ([\d.]+)', answer)
        return {outcome: float(count) for outcome, count in result}

    before = judged()
    return lambda: {outcome: count - before[outcome] for outcome, count in judged().items()}


def sent(tenant: Any, *events: Mapping[str, Any], **options: Any) -> Any:
    answer = [{**SERVED, "event": f"e{i:03}", **event} for i, event in enumerate(events)]
    body = answer[0] if len(answer) == 1 else {"events": answer}
    return tenant.post("/v1/events", body, **{"headers": tenant.public, **options})


# --- What holds -----------------------------------------------------------------------------


def test_an_event_is_signed_by_its_router_s_token(tenant) -> None:
    answer = sent(tenant, {"assignment": token(tenant)})
    assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
    assert "ignored" not in answer.json()
    assert stored(tenant) == [True]


@pytest.mark.parametrize("more", [{}, {"unheard_of": 1}], ids=["known members", "an unknown one"])
def test_each_event_of_a_batch_is_judged_by_its_own_token(tenant, metered, more) -> None:
    other = token(tenant, session_id="s-2")
    answer = sent(
        tenant,
        {"assignment": token(tenant), **more},
        {"assignment": other, **more},
        {"assignment": other, "session_id": "s-2", **more},
        more,
    )
    assert answer.json()["accepted"] == 4
    assert stored(tenant) == [True, False, True, False]
    assert metered() == {"valid": 2, "invalid": 1}


@pytest.mark.parametrize(
    ("members", "signed"),
    [
        ({"commit": "4F2A9C1D"}, True),
        ({"environment": None}, True),
        ({"user_ref": "u-1", "route": "/", "value": 1.5, "properties": {"a": 1}}, True),
        ({"event": "order"}, True),
        ({"session_id": "s-2"}, False),
        ({"commit": "4f2a9c1"}, False),
        ({"commit": None}, False),
        ({"environment": "staging"}, False),
        ({"flags": {"new_cart": True}}, False),
    ],
    ids=[
        *("a commit in capitals", "no environment", "members beside", "another event"),
        *("session", "commit", "no commit", "another environment", "flags"),
    ],
)
def test_a_token_holds_for_its_assignment_whatever_else_is_sent_and_for_nothing_else(
    tenant, metered, members, signed
) -> None:
    assert sent(tenant, {"assignment": token(tenant), **members}).status_code == 202
    assert stored(tenant) == [signed]
    assert metered() == {"valid": int(signed), "invalid": int(not signed)}


def test_flags_are_signed_whatever_their_order(tenant) -> None:
    flags = {"z": "on", "new_cart": True, "a": False, "ä": "ö"}
    signed = token(tenant, flags=flags)
    turned = dict(reversed(flags.items()))
    sent(
        tenant,
        {"assignment": signed, "flags": turned},
        {"assignment": signed, "flags": {**flags, "a": True}},
        {"assignment": signed, "flags": {**flags, "b": "on"}},
        {"assignment": signed},
    )
    assert stored(tenant) == [True, False, False, False]


def test_another_project_s_key_signs_nothing(tenant) -> None:
    other = tenant.new_project("other").project_id
    sent(tenant, {"assignment": token(tenant, project_id=other)})
    assert stored(tenant) == [False]


def test_the_keys_in_force_are_those_that_the_setting_names(tenant) -> None:
    tenant.settings(assignment_epochs=[3, 2])
    sent(tenant, *({"assignment": token(tenant, epoch=epoch)} for epoch in (1, 2, 3, 4)))
    assert stored(tenant) == [False, True, True, False]


def test_history_may_carry_tokens(tenant) -> None:
    result = {"assignment": token(tenant), "occurred_at": "2026-01-31T12:00:00Z"}
    answer = tenant.post("/v1/events?replay=true", {**SERVED, "event": "page_view", **result})
    assert answer.status_code == 202
    assert stored(tenant) == [True]


# --- What is sent instead -------------------------------------------------------------------

ODD = ["x", "0" * 64, "0" * 256, "ß∂ƒ" * 20, "\U0001f511", "' OR 1=1 --", "\n", "ak_" + "0" * 64]


def test_a_token_that_does_not_hold_is_answered_like_one_that_does(tenant) -> None:
    good, *bad = (sent(tenant, {"assignment": assignment}) for assignment in (token(tenant), *ODD))
    assert {answer.status_code for answer in (good, *bad)} == {202}
    assert {answer.text for answer in bad} == {good.text}


@pytest.mark.parametrize("assignment", ["", "x" * 257, 1, True, {}, ["x"]], ids=repr)
def test_what_is_no_token_is_a_fault_of_its_event(tenant, assignment) -> None:
    answer = sent(tenant, {"assignment": assignment}, {})
    assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
    (rejected,) = answer.json()["rejected"]
    assert rejected["errors"][0]["pointer"] == "/events/0/assignment"


def test_nothing_is_asked_of_events_without_a_token(tenant, metered) -> None:
    assert sent(tenant, {}, {"assignment": None}).status_code == 202
    assert stored(tenant) == [False, False]
    assert metered() == {"valid": 0, "invalid": 0}


def test_a_token_cannot_vouch_for_a_user(tenant) -> None:
    with pytest.raises(Invalid, match="vouches for sessions"):
        tenant.settings(signed_assignments=True, unit="user")
    tenant.settings(unit="user")
    with pytest.raises(Invalid, match="vouches for sessions"):
        tenant.settings(signed_assignments=True)


def test_an_assignment_key_is_no_key_of_the_api(tenant) -> None:
    key = Assignments(b"a secret of the tests, long enough").key(tenant.project_id, 1)
    answer = sent(tenant, {}, headers={"X-Service-Project-Key": key})
    assert (answer.status_code, answer.json()["code"]) == (401, "malformed_key")


# --- The form -------------------------------------------------------------------------------

# What an event's texts may hold: no NUL.
words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4)
assignments = st.fixed_dictionaries(
    {
        "environment": words,
        "session_id": words,
        "commit": words,
        "flags": st.dictionaries(words, words, max_size=3),
    }
)


@given(assignments, assignments)
def test_no_two_assignments_share_a_message(first, other) -> None:
    assert (assignment_message(**first) == assignment_message(**other)) == (first == other)


SIGNED: list[dict[str, Any]] = [
    {"environment": "production", "session": "s-4711", "commit": "4f2a9c1d", "flags": {}},
    {"environment": "staging", "session": "sè\n\"'\\☃", "commit": "4F2A9C1D", "flags": {}},
    {
        "environment": "production",
        "session": "s",
        "commit": "4f2a9c1d",
        "flags": {"z": "on", "new_cart": True, "10": "x", "9": False, "ä": "", "Z": "true"},
    },
]
KEY = "ak_0"


def ours(assignment: Mapping[str, Any]) -> str:
    return assignment_token(
        KEY,
        assignment_message(
            environment=assignment["environment"],
            session_id=assignment["session"],
            commit=assignment["commit"].lower(),
            flags=assignment["flags"],
        ),
    )


def test_the_example_of_the_page_is_true() -> None:
    (digest,) = re.findall(r"`([0-9a-f]{64})`", PAGE.read_text())
    assert digest == ours({**SIGNED[0], "flags": {"new_cart": True}})


@pytest.mark.parametrize("drawn", SIGNED, ids=["plain", "odd", "flags"])
def test_a_router_in_python_signs_as_the_page_shows(drawn, tmp_path) -> None:
    file = tmp_path / "router.py"
    file.write_text(example("token.py"))
    spec = importlib.util.spec_from_file_location("router", file)
    assert spec is not None
    assert spec.loader is not None
    router = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(router)
    assert router.token(KEY, **drawn) == ours(drawn)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize(
    "imported",
    [
        "import router from './router.mjs'; const { token } = router;",
        "import { token } from './router.mjs';",
    ],
    ids=["njs", "worker"],
)
def test_a_router_in_javascript_signs_as_the_page_shows(imported, tmp_path) -> None:
    router = "assignment.js" if "const { token }" in imported else "token.mjs"
    (tmp_path / "router.mjs").write_text(example(router))
    result = json.dumps([[KEY, *each.values()] for each in SIGNED])
    (tmp_path / "main.mjs").write_text(
        f"{imported}\nconst tokens = [];\n"
        f"for (const assignment of {result}) tokens.push(await token(...assignment));\n"
        "console.log(JSON.stringify(tokens));\n"
    )
    run: Callable[..., Any] = subprocess.run
    answer = run(["node", "main.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == [ours(each) for each in SIGNED]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_page_hands_on_what_nginx_gave_it_as_the_page_shows(tmp_path) -> None:
    (tmp_path / "router.mjs").write_text(example("assignment.js"))
    (tmp_path / "page.mjs").write_text(example("handed-on.mjs"))
    (tmp_path / "main.mjs").write_text(
        f"""
import router from './router.mjs';
import {{ send }} from './page.mjs';
process.env.ASSIGNMENT_KEY = '{KEY}';
const given = router.served({{ variables: {{ commit: '4f2a9c1d', session: 's-4711' }} }});
globalThis.document = {{ cookie: 'a=b; session=s-4711; assignment=' + given }};
Object.defineProperty(globalThis, 'navigator', {{
    value: {{ sendBeacon: (url, body) => console.log(JSON.stringify([url, JSON.parse(body)])) }},
}});
send('https://reward.example', 'pk_1', {{ event: 'page_view', route: '/' }});
"""
    )
    run: Callable[..., Any] = subprocess.run
    answer = run(["node", "main.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(answer.stdout) == [
        "https://reward.example/v1/events?key=pk_1",
        {
            "session_id": "s-4711",
            "commit": "4f2a9c1d",
            "assignment": ours(SIGNED[0]),
            "event": "page_view",
            "route": "/",
        },
    ]
