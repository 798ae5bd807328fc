"""Scripts in what was sent, and posts of other sites: neither does anything on a page."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from sqlalchemy import text

from storage.tenants.keys import Role
from storage.tenants.projects import CreatedProject, create_project
from tests.browser.dashboard.world import Pages, Served

pytestmark = pytest.mark.process

PAYLOADS = [
    "<script>hit()</script>",
    "<img src=x onerror=hit()>",
    "<svg/onload=hit()>",
    '"><script>hit()</script>',
    "'><script>hit()</script>",
    "' onmouseover='hit()",
    '" autofocus onfocus="hit()',
    "</title><script>hit()</script>",
    "</textarea><script>hit()</script>",
    "</script><script>hit()</script>",
    "<body onload=hit()>",
    "<details open ontoggle=hit()>",
    "<a href=javascript:hit()>x</a>",
    "javascript:hit()",
    "{{ self.__init__.__globals__ }}",
    "{{ 7 * 7 }}{% raw %}",
    "${hit()}",
    "`${hit()}`",
    "\\u003cscript\\u003ehit()\\u003c/script\\u003e",
    "&lt;script&gt;hit()&lt;/script&gt;",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=hit()>",
    "\u202e<script>hit()</script>\u2028",
    "<iframe srcdoc='<script>parent.hit()</script>'>",
    "<object data=javascript:hit()>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<base href=//evil.example/>",
    "<form action=//evil.example><button>",
    "<link rel=stylesheet href=//evil.example>",
    "<style>@import'//evil.example'</style>",
    "<!--><script>hit()</script>-->",
]
ALL = " ".join(PAYLOADS)
# A name has no line break, and is no template alone.
NAMES = [f"a{payload}".replace("\u2028", "") for payload in PAYLOADS]
SETTINGS = "/dashboard/settings"
_FOREIGN = "main :is(script, iframe, object, img, style, base, meta), [href^=javascript i]"


class Watch:
    """What a page does that it must not."""

    def __init__(self, page: Page) -> None:
        self.ran: list[str] = []
        self.asked: list[str] = []
        page.expose_function("hit", lambda: self.ran.append(page.url))
        page.on("dialog", lambda dialog: self.ran.append(dialog.message))
        page.on("request", lambda request: self.asked.append(request.url))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => {"
            " (window.violations ??= []).push(`${event.violatedDirective} ${event.sourceFile}`) })"
        )


@pytest.fixture(scope="module")
def hostile(world) -> Served:
    """A project that holds the payloads in whatever its pages show."""
    engine = world.served.store.engine
    with engine.begin() as connection:
        project = create_project(connection, ALL)
    served = Served(store=world.served.store, client=world.served.client, project=project)
    routes = [{"path": payload, "files": [payload]} for payload in PAYLOADS]
    files = [{"filename": payload, "status": payload[:32]} for payload in PAYLOADS]
    deploy = {
        "commit": {"sha": "d" * 8, "message": f"{ALL}\n{ALL}"},
        "environment": PAYLOADS[0],
        "graph": {"schema_version": "1", "routes": routes},
        "diff": {"base_commit": "f" * 8, "files": files},
    }
    answer = served.post("/v1/deploys", deploy)
    assert answer.status_code == 201, answer.text
    deploy_id = answer.json()["deploy"]["deploy_id"]
    flag = {"name": PAYLOADS[1], "treatment": PAYLOADS[2]}
    for extra in ({}, {"treatment_flag": flag}):
        body = {"deploy_id": deploy_id, "target_metric": PAYLOADS[0], "guardrails": NAMES}
        answer = served.post("/v1/reward/register", {**body, **extra})
        assert answer.status_code == 201, answer.text
    _stored_beyond_the_rules(world, project)
    return served


def _stored_beyond_the_rules(world: Pages, project: CreatedProject) -> None:
    """Puts payloads where no request gets them, as an older version might have let a request do."""
    commit = {
        "author": ALL,
        "branch": ALL,
        "url": f"javascript:hit()//{ALL}",
        "pull_request": f"javascript:hit()//{ALL}",
    }
    settings = {
        "default_metric": PAYLOADS[0],
        "guardrails": NAMES,
        "allowed_origins": PAYLOADS,
        "trusted_proxies": PAYLOADS,
        "metrics": {payload: {"sources": PAYLOADS, "currency": ALL} for payload in PAYLOADS},
        "value_routes": [
            {"metric": payload, "route": payload, "currency": ALL, "value_per_conversion": 1}
            for payload in PAYLOADS
        ],
        "webhooks": [
            {"url": "https://hooks.example/" + payload.replace(" ", "/")}
            for payload in PAYLOADS
            if payload.isascii()
        ][:10],
    }
    contract = _contract(world)
    asked = {"id": project.project_id}
    with world.served.store.engine.begin() as connection:
        for statement, value in (
            ("deploys SET commit = commit::jsonb || :value", commit),
            ("projects SET settings = :value", settings),
            ("verdicts SET contract = :value", {**contract, "guardrail_breaches": PAYLOADS}),
            ("verdicts SET evidence = :value", _evidence(world)),
        ):
            change = statement.replace(":value", "CAST(:value AS jsonb)")
            connection.execute(
                text(f"UPDATE {change} WHERE project_id = :id"),
                {**asked, "value": json.dumps(value)},
            )


def _evidence(world: Pages) -> dict[str, Any]:
    document = world.served.evidence(world.experiments["iterate"])
    target = {**document["policy"]["target"], "name": ALL, "kind": "mean", "currency": ALL}
    first, second = document["metrics"][:2]
    return {
        **document,
        "policy": {**document["policy"], "target": target},
        "guardrails": [{**document["guardrails"][0], "metric": name} for name in NAMES],
        "metrics": [{**first, "metric": ALL}, *({**second, "metric": name} for name in NAMES)],
        "sentence": ALL,
        "reason": ALL,
        "warnings": PAYLOADS,
    }


def _pages(world: Pages, served: Served) -> list[str]:
    with world.served.store.engine.begin() as connection:
        row = connection.execute(
            text(
                "SELECT deploy_id, array_agg(experiment_id) FROM experiments"
                " WHERE project_id = :id GROUP BY deploy_id"
            ),
            {"id": served.project.project_id},
        ).one()
    deploy_id, experiments = row
    return [
        "/dashboard",
        "/dashboard/deploys",
        "/dashboard/ledger",
        f"/dashboard/deploys/{deploy_id}",
        "/dashboard/experiments",
        f"/dashboard/experiments/{experiments[0]}/evidence",
        f"/dashboard/experiments/{experiments[0]}/live",
        *(SETTINGS + page for page in ("", "/keys", "/metrics", "/values", "/webhooks")),
        "/dashboard/sign-in",
        f"/dashboard/deploys/dep_{'0' * 20}",
        f"/dashboard/experiments/{experiments[1]}",
        f"/dashboard/experiments/{experiments[0]}",
    ]


def _owner(context: Callable[..., BrowserContext], world: Pages, served: Served) -> Page:
    page = context().new_page()
    page.goto(served.link(Role.OWNER))
    page.wait_for_url(f"{world.url}/dashboard")
    return page


def test_scripts_in_what_was_sent_never_run(context, world, hostile) -> None:
    page = _owner(context, world, hostile)
    watch = Watch(page)
    for path in _pages(world, hostile):
        answer = page.goto(f"{world.url}{path}")
        assert answer is not None
        assert answer.status == (404 if "dep_000" in path else 200), path
        if "application/json" not in answer.headers["content-type"]:
            # The name of the project, as text, and whole.
            assert page.locator("header .project").inner_text().startswith(PAYLOADS[0])
            assert page.evaluate(f"document.querySelectorAll({_FOREIGN!r}).length") == 0
        assert page.evaluate("window.violations ?? []") == [], path
    # The last page is of an open experiment: what changes comes through its script.
    with world.served.store.engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE verdicts SET next_look_at = NULL, contract = :told WHERE project_id = :id"
            ),
            {
                "told": json.dumps({**_contract(world), "verdict": "keep"}),
                "id": hostile.project.project_id,
            },
        )
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(page.locator("[data-live]")).to_have_attribute("data-asked", "1")
    expect(page.get_by_label("Verdict", exact=True)).to_contain_text("Keep")
    page.goto(f"{world.url}{SETTINGS}/metrics")
    page.get_by_text("New metric").click()
    new = page.locator("details.new")
    new.get_by_label("Name").fill(ALL)
    new.locator("details.more > summary").click()
    new.get_by_label("Cap").fill(ALL)
    new.get_by_role("button").click()
    expect(page.get_by_text("A name must be a text of 1 to 128 characters.")).to_be_visible()
    assert page.evaluate("window.violations ?? []") == []
    assert watch.ran == []
    assert [url for url in watch.asked if not url.startswith(f"{world.url}/dashboard")] == []


def _contract(world: Pages) -> dict[str, Any]:
    return world.served.contract(world.experiments["iterate"])


_INSERTED = """(payloads) => {
    for (const one of payloads) document.querySelector("main").insertAdjacentHTML("beforeend", one);
    document.body.append(Object.assign(document.createElement("script"), {text: "hit()"}));
    for (const one of document.querySelectorAll("a[href^=javascript]")) one.click();
}"""


def test_markup_that_got_through_would_not_run_either(new_context, world) -> None:
    page = new_context().new_page()
    watch = Watch(page)
    page.goto(f"{world.url}/dashboard/sign-in")
    # Those that would lead the page away are no scripts.
    page.evaluate(_INSERTED, [payload for payload in PAYLOADS if "hit()" in payload])
    for kind in ("script-src-elem", "script-src-attr"):
        page.wait_for_function(
            "(kind) => window.violations?.some((one) => one.startsWith(kind))", arg=kind
        )
    assert watch.ran == []
    assert [url for url in watch.asked if not url.startswith(f"{world.url}/")] == []
