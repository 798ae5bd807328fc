"""The scripts that pages and builds load: small, cached, and open to every origin."""

import gzip
from typing import Any

import pytest

from api.programs.scripts import source_of, without_comments

SCRIPTS = {
    "sdk.js": "text/javascript",
    "route-graph.mjs": "text/javascript",
    "route_graph.py": "text/x-python",
}
every_script = pytest.mark.parametrize("name", SCRIPTS)


def asked(service: Any, name: str, **headers: str) -> Any:
    return service.client.get(f"/{name}", headers={"Accept-Encoding": "identity", **headers})


@every_script
def test_a_script_is_served_to_every_origin_without_a_key(service, name) -> None:
    answer = asked(service, name)
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == f"{SCRIPTS[name]}; charset=utf-8"
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    source = source_of(name)
    assert answer.text == (without_comments(source) if name == "sdk.js" else source)


@every_script
@pytest.mark.parametrize("encoding", ["identity", "br, gzip"])
def test_a_script_is_kept_for_an_hour_and_then_asked_for_by_its_tag(
    service, name, encoding
) -> None:
    answer = asked(service, name, **{"Accept-Encoding": encoding})
    assert answer.headers["Cache-Control"].startswith("public, max-age=3600")
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert answer.headers.get("Content-Encoding") == ("gzip" if "gzip" in encoding else None)
    tag = answer.headers["ETag"]
    again = asked(service, name, **{"Accept-Encoding": encoding, "If-None-Match": f'"x", W/{tag}'})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    # The other form of it has a tag of its own: whoever has this has not the other.
    other = "identity" if "gzip" in encoding else "gzip"
    assert asked(service, name, **{"Accept-Encoding": other, "If-None-Match": tag}).text


def test_the_sdk_is_smaller_than_three_kibibytes(service) -> None:
    plain = asked(service, "sdk.js").content
    assert len(gzip.compress(plain)) < 3 * 1024
    assert b"//" not in plain.replace(b"://", b"")
