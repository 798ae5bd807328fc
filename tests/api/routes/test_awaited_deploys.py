"""An experiment that waits for its deploy says where else its commit is deployed."""

from typing import Any

from storage.tenants.keys import KeyKind

ASKED = {"treatment_commit": "b" * 8}


def deployed(service: Any, environment: str) -> None:
    body = {"commit": {"sha": "b" * 40}, "environment": environment}
    assert service.post("/v1/deploys", body).status_code == 201


def test_where_else_its_commit_is_deployed_is_told(service: Any) -> None:
    deployed(service, "staging")
    experiment = service.post("/v1/reward/register", ASKED).json()["experiment_id"]
    key = service.project.keys[KeyKind.PROJECT]
    own = {"Sec-Fetch-Site": "same-origin"}
    service.client.post("/dashboard/sign-in", data={"secret": key}, headers=own)
    page = f"/dashboard/experiments/{experiment}"
    assert "so far it is deployed to staging<" in service.client.get(page).text
    known = {"If-None-Match": service.client.get(f"{page}/live").headers["ETag"]}

    # An open page is told of each new place.
    deployed(service, "canada")
    answer = service.client.get(f"{page}/live", headers=known).json()
    assert "so far it is deployed to canada, staging<" in answer["parts"]["progress"]
    told = {line["check"]: line["seen"] for line in service.get("/v1/reward/checklist").json()}
    assert told["both arms in one block"] == (
        f"{experiment} waits for its deploy to production;"
        " so far bbbbbbbbbbbb is deployed to canada, staging."
    )

    deployed(service, "production")
    assert "deployed to canada" not in service.client.get(page).text
