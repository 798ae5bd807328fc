"""What the guard lets pass to Dagster's web server, and what the proxy lets pass to it."""

import base64
import datetime as dt
import http.client
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from orchestration.guard import Guard
from tests.processes.api_process import port_of_our_own
from tests.processes.dagster_web import PAUSE, dagster_web, is_paused, set_paused
from tests.processes.nginx import nginx

pytestmark = pytest.mark.process

CONF = Path(__file__).parents[2] / "docs/operations/deployment/nginx.conf"
EVIL = "https://evil.example"
OWN = "https://ops.example"
MUTATION = PAUSE % "true"
BY_GET = f"/graphql?query={quote(MUTATION)}"
JSON = {"Content-Type": "application/json"}
BODY = f'{{"query": "{MUTATION}"}}'.encode()
WEB_SOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "graphql-ws",
}


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A request, as a browser or a program sends it."""

    path: str = "/graphql"
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    method: str = "GET"

    def status(self, connection: http.client.HTTPConnection, prefix: str = "") -> tuple[int, str]:
        """Sends it with the headers that it names, and `Host: ops.example` where it names none."""
        headers = {"Host": "ops.example", **self.headers}
        connection.putrequest(self.method, prefix + self.path, skip_host=True)
        for name, values in headers.items():
            for value in values.split("\n"):
                connection.putheader(name, value)
        if self.body is not None:
            connection.putheader("Content-Length", str(len(self.body)))
        connection.endheaders(self.body)
        answer = connection.getresponse()
        text = "" if answer.status == 101 else answer.read().decode(errors="replace")
        connection.close()
        return answer.status, text


def post(**headers: str) -> Sent:
    return Sent(method="POST", body=BODY, headers={**JSON, **headers})


def followed(site: str, destination: str = "document") -> dict[str, str]:
    return {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": destination}


REFUSED = {
    "an image's address that mutates": Sent(path=BY_GET),
    "the same below a slash": Sent(path=BY_GET.replace("?", "/?")),
    "a link that mutates": Sent(path=BY_GET, headers=followed("cross-site")),
    "a second query in the address": Sent(path=f"{BY_GET}&query=%7Bversion%7D"),
    "a mutation behind a query": Sent(path=f"/graphql?query={quote('{version} ' + MUTATION)}"),
    "a subscription by GET": Sent(path=f"/graphql?query={quote('subscription { a }')}"),
    "what is no GraphQL": Sent(path="/graphql?query=%7B%7B"),
    "what nests without end": Sent(path=f"/graphql?query={'%7Ba' * 1500}"),
    "a POST of another origin": post(Origin=EVIL),
    "a POST of no origin that may be told": post(Origin="null"),
    "a POST of this host at another port": post(Origin="https://ops.example:8443"),
    "a fetch of another site": post(**{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}),
    "a fetch of another port": post(**{"Sec-Fetch-Site": "same-site"}),
    "a read for another site": Sent(path="/server_info", headers={"Sec-Fetch-Site": "cross-site"}),
    "a frame of another site": Sent(path="/", headers=followed("cross-site", "iframe")),
    "a form": Sent(
        method="POST",
        path=BY_GET,
        body=b"a=b",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    ),
    "JSON in a form of plain text": post(**{"Content-Type": "text/plain"}),
    "JSON that is named as a parameter": post(**{"Content-Type": "text/plain; application/json"}),
    "a POST of no kind": Sent(method="POST", path=BY_GET, body=b""),
    "an asset reported by a form": Sent(
        method="POST",
        path="/report_asset_materialization/a",
        headers={"Content-Type": "text/plain"},
    ),
    "a name that was made to resolve here": post(Host="rebind.evil.example"),
    "a name that only begins as ours": post(Host="ops.example.evil.example"),
    "a read by that name": Sent(path="/server_info", headers={"Host": "rebind.evil.example"}),
    "a socket of another origin": Sent(headers={**WEB_SOCKET, "Origin": EVIL}),
    "a socket of that name": Sent(headers={**WEB_SOCKET, "Host": "rebind.evil.example"}),
}
PASSED = {
    "the page": Sent(path="/", headers=followed("none")),
    "the page by a link of another site": Sent(path="/", headers=followed("cross-site")),
    "the page by a link of another port": Sent(path="/runs", headers=followed("same-site")),
    "the health path": Sent(path="/server_info"),
    "the playground": Sent(headers={"Accept": "text/html", **followed("none")}),
    "the page's own request": post(Origin=OWN, **{"Sec-Fetch-Site": "same-origin"}),
    "a program's request": post(),
    "JSON with its character set": post(**{"Content-Type": "application/json; charset=utf-8"}),
    "the page's own socket": Sent(headers={**WEB_SOCKET, "Origin": OWN}),
    "a program's socket": Sent(headers=WEB_SOCKET),
}
# nginx passes no GraphQL by GET, and knows a single name.
PASSED_BY_THE_GUARD = {
    "a query by GET": Sent(path="/graphql?query=%7Bversion%7D"),
    "a search in a page": Sent(path=f"/runs?query={quote(MUTATION)}"),
    "the loopback's name": post(Host="localhost:3000", Origin="http://localhost:3000"),
    "the loopback's address": post(Host="127.0.0.1:3000", Origin="http://127.0.0.1:3000"),
    "the loopback's other address": post(Host="[::1]:3000", Origin="http://[::1]:3000"),
    "a name of the list": post(Host="dagster.internal:3000", Origin="http://dagster.internal:3000"),
    "what a proxy passes under its own name": post(Host="127.0.0.1:3000", Origin=OWN),
}
REFUSED_BY_THE_GUARD = {
    "two names": Sent(path="/server_info", headers={"Host": "ops.example\nlocalhost"}),
    "a user in the name": Sent(path="/server_info", headers={"Host": "a@ops.example"}),
    "a name on the list's port": post(Host="dagster.internal", Origin="http://localhost"),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory) -> Iterator[str]:
    with dagster_web(
        tmp_path_factory.mktemp("dagster"),
        SERVICE_DAGSTER_URL=f"{OWN}/dagster",
        SERVICE_DAGSTER_HOSTS="dagster.internal, 10.0.0.7",
    ) as url:
        yield url


def to_the_guard(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_BY_THE_GUARD])
def test_what_another_site_can_send_is_refused_in_one_line(guarded, name) -> None:
    status, text = (REFUSED | REFUSED_BY_THE_GUARD)[name].status(to_the_guard(guarded))
    assert (status, text[:9], text.count("\n")) == (403, "Refused: ", 1)
    assert not is_paused(guarded)


@pytest.mark.parametrize("name", [*PASSED, *PASSED_BY_THE_GUARD])
def test_what_its_own_pages_and_programs_send_is_answered(guarded, name) -> None:
    sent = (PASSED | PASSED_BY_THE_GUARD)[name]
    status, text = sent.status(to_the_guard(guarded))
    assert status == (101 if "Upgrade" in sent.headers else 200), text
    if sent.body == BODY:
        assert is_paused(guarded)
        set_paused(guarded, paused=False)


@pytest.mark.parametrize("host", ["http://ops.example", "ops.example:3000", "ops.example/dagster"])
def test_a_list_of_anything_but_names_is_refused_at_the_start(host) -> None:
    with pytest.raises(ValueError, match=re.escape(f"'{host}' is not the name of a host")):
        Guard(lambda *_: None, hosts=[host])  # pyright: ignore[reportArgumentType]


# --- The proxy --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proxy(tmp_path_factory) -> Iterator[int]:
    """The port of a real nginx with our configuration, before a Dagster without any guard."""
    folder = tmp_path_factory.mktemp("nginx")
    certify(folder)
    (folder / "dagster.htpasswd").write_text("anna:{PLAIN}secret\n")
    with ExitStack() as ports:
        port, web, api = (ports.enter_context(port_of_our_own()) for _ in range(3))
        shown = CONF.read_text()
        for before, after in (
            ("listen 443", f"listen 127.0.0.1:{port}"),
            ("127.0.0.1:3000", f"127.0.0.1:{web}"),
            ("127.0.0.1:8000", f"127.0.0.1:{api}"),
            ("/etc/nginx/", f"{folder}/"),
        ):
            assert before in shown
            shown = shown.replace(before, after)
        shown = re.sub(r"/etc/ssl/[\w/.]+\.(pem|key)", rf"{folder}/both.\1", shown)
        behind = f'server {{ listen 127.0.0.1:{web}; return 200 "reached"; }}'

        def answers() -> bool:
            try:
                return Sent(path="/").status(to_the_proxy(port))[0] == 404
            except OSError:
                return False

        with nginx(folder, f"{shown} {behind}", answers=answers):
            yield port


def certify(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ops.example")])
    today = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today - dt.timedelta(days=1))
        .not_valid_after(today + dt.timedelta(days=1))
        .sign(key, SHA256())
    )
    (folder / "both.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "both.key").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )


def to_the_proxy(port: int) -> http.client.HTTPConnection:
    """A connection over TLS that asks for the server's name, whatever Host it then sends."""
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sock = trusting.wrap_socket(plain, server_hostname="ops.example")
    return connection


def signed_in(sent: Sent) -> Sent:
    login = {"Authorization": f"Basic {base64.b64encode(b'anna:secret').decode()}"}
    return Sent(path=sent.path, method=sent.method, body=sent.body, headers=sent.headers | login)


@pytest.mark.parametrize("name", REFUSED)
def test_the_proxy_refuses_the_same_of_somebody_who_is_signed_in(proxy, name) -> None:
    status, text = signed_in(REFUSED[name]).status(to_the_proxy(proxy), prefix="/dagster")
    assert (status, text[:9]) == (403, "Refused: ")


@pytest.mark.parametrize("name", PASSED)
def test_the_proxy_passes_the_same_with_a_login_alone(proxy, name) -> None:
    sent = PASSED[name]
    assert signed_in(sent).status(to_the_proxy(proxy), "/dagster") == (200, "reached")
    assert sent.status(to_the_proxy(proxy), "/dagster")[0] == 401
