"""An experiment that waits for its deploy says where else its commit is deployed."""

from tests.clients.owner import Owner

COMMIT = "b" * 40


def test_a_page_and_the_checklist_say_where_else_its_commit_is_deployed(service) -> None:
    service.deploy(COMMIT, environment="staging")
    experiment = service.register(treatment_commit=COMMIT[:8])
    Owner(service)
    page = f"/dashboard/experiments/{experiment}"
    assert "so far it is deployed to staging<" in service.client.get(page).text
    known = {"If-None-Match": service.client.get(f"{page}/live").headers["ETag"]}

    # An open page learns of each new place.
    service.deploy(COMMIT, environment="canada")
    answer = service.client.get(f"{page}/live", headers=known).json()
    assert "so far it is deployed to canada, staging<" in answer["parts"]["progress"]
    seen = {line["check"]: line["seen"] for line in service.get("/v1/reward/checklist").json()}
    assert seen["canary and control both get traffic"] == (
        f"{experiment} waits for its deploy to production;"
        " so far bbbbbbbbbbbb is deployed to canada, staging."
    )

    service.deploy(COMMIT, environment="production")
    assert "deployed to canada" not in service.client.get(page).text
