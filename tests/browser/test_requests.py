"""Requests with bodies as a browser sends them."""

from typing import Any

import pytest

from api.app import create_app
from api.runtime.settings import ApiSettings
from storage.tenants.projects import create_project
from tests.clients.requests_with_bodies import requests_with_bodies
from tests.processes.served import Served

pytestmark = pytest.mark.process

SEND = """
async (requests) => {
  const statuses = [];
  for (const { path, headers, document, encoding } of requests) {
    let body = JSON.stringify(document);
    if (encoding) {
      const packed = new Blob([body]).stream().pipeThrough(new CompressionStream(encoding));
      body = await new Response(packed).blob();
    }
    statuses.push((await fetch(path, { method: "POST", headers, body })).status);
  }
  return statuses;
}
"""


def test_a_browser_sends_every_body(store, page) -> None:
    with store.engine.begin() as connection:
        project = create_project(connection, "shop")
    settings = ApiSettings(database_url=store.url, secret=b"a secret of the tests, long enough")
    sent: list[dict[str, Any]] = [
        {
            "path": request.path,
            "headers": request.headers,
            "document": request.document,
            "encoding": request.encoding,
        }
        for request in requests_with_bodies(project)
    ]
    with Served(app=create_app(settings), http="h11") as service:
        # A page of the service's own origin: pages of others may send events alone.
        page.goto(f"{service.url}/healthz")
        assert page.evaluate(SEND, sent) == [202, 202, 201, 200]
