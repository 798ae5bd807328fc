"""The loads of docs/operations/scale.md: every event is stored, each of another session."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import text

from storage.tenants.keys import KeyKind
from tests.cli.conftest import serving

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations" / "scale.md").read_text()


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed: apt install wrk")
@pytest.mark.nightly
def test_wrk_sends_events_of_sessions_of_their_own_half_of_each_build(service) -> None:
    (command,) = re.findall(r"^wrk .*$", PAGE, re.MULTILINE)
    service.settings(rate_limits={"per_key": 10**9, "per_address": 10**9})
    with serving(service) as url:
        shown = command.replace("-d30s", "-d1s").replace("http://127.0.0.1:8000", url)
        run = subprocess.run(
            ["sh", "-c", shown],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={"PUBLIC_KEY": service.project.keys[KeyKind.PUBLIC], "PATH": "/usr/bin:/bin"},
        )
    assert " 0 refused" in run.stdout, run.stdout
    counted = text(
        "SELECT count(*), count(DISTINCT session_id), count(DISTINCT event_id),"
        " count(*) FILTER (WHERE commit_sha = 'bada550') FROM runtime_events"
        " WHERE environment = 'load'"
    )
    stored, sessions, events, treated = service.in_store(
        lambda connection: tuple(connection.execute(counted).one())
    )
    assert stored == sessions == events > 0
    assert stored % 100 == 0
    assert abs(treated - stored / 2) <= 1


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_script_of_k6_sends_what_the_service_takes(service) -> None:
    """As k6 calls it: with its variables, and its modules in their place."""
    script = (ROOT / "docs" / "load" / "events.js").read_text()
    source = script.replace('import { check } from "k6";\n', "const check = () => {};\n").replace(
        'import http from "k6/http";\n',
        "const http = { post: (url, body) => console.log(JSON.stringify({ url, body })) };\n",
    )
    known = 'const __ENV = { URL: "http://x", KEY: "k", BATCH: "3" }, __VU = 1, __ITER = 0;\n'
    ran = subprocess.run(
        ["node", "--input-type=module", "-"],
        input=f"{known}{source}\nsends();",
        check=True,
        capture_output=True,
        text=True,
    )
    answer = service.client.post(
        "/v1/events",
        content=json.loads(ran.stdout)["body"],
        headers={**service.write, "Content-Type": "application/json"},
    )
    assert answer.status_code == 202, answer.text
    assert answer.json()["accepted"] == 3
