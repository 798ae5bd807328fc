"""The guard: refuses what another site's page makes a browser send to Dagster's web server.

Dagster's web server has no login and asks nobody where a request comes from. Listening on
127.0.0.1 does not help against the developer's own browser, which any page can tell to send
requests there. The rules follow what browsers do: https://www.w3.org/TR/fetch-metadata/ for
`Sec-Fetch-*`, https://fetch.spec.whatwg.org/#cors-safelisted-request-header for what a page may
send without asking first.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_DEFAULT_PORTS = {"http": 80, "https": 443}
_OWN_SITES = frozenset({None, "same-origin", "none"})
# A page must ask (by a preflight, which Dagster declines) before it may send these.
_PREFLIGHTED_TYPES = frozenset({"application/json", "application/graphql"})
# A message quotes so much of a header: enough to recognize it.
_QUOTED_CHARACTERS = 100


class Guard:
    """ASGI middleware that passes requests of the server's own pages and of a person's programs."""

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str] = (), url: str | None = None) -> None:
        """Put the guard in front of an application.

        Args:
            hosts: Names under which the server is reached, beside those of this machine's
                loopback; without ports.

        Raises:
            ValueError: A host is given with a port or a scheme, or the address is none.
        """
        public = None if url is None else _web_address(url)
        names = {*hosts, *(() if public is None else (public.hostname or "",))}
        for name in names:
            if not name or urlsplit(f"//{name}").hostname != name.lower().strip("[]"):
                raise ValueError(f"{name!r} is not the name of a host, without scheme and port")
        self._app = app
        self._hosts = frozenset(name.lower().strip("[]") for name in names)
        self._public = None if public is None else _authority(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 with a line, or hand the request on."""
        reason = None
        if scope["type"] in {"http", "websocket"}:
            reason = self._objection(HTTPConnection(scope))
        if reason is None:
            await self._app(scope, receive, send)
            return
        refusal = PlainTextResponse(
            f"Refused: {reason}\n", status_code=403, headers={"X-Content-Type-Options": "nosniff"}
        )
        await refusal(scope, receive, send)

    def _objection(self, connection: HTTPConnection) -> str | None:
        return (
            self._unknown_host(connection)
            or self._foreign_origin(connection)
            or _foreign_site(connection)
            or _form_post(connection)
            or _mutation_by_get(connection)
        )

    def _unknown_host(self, connection: HTTPConnection) -> str | None:
        """A page whose name was made to resolve to this machine still sends its own Host."""
        sent = connection.headers.getlist("host")
        if len(sent) != 1:
            return f"the request has {len(sent)} Host headers; send a single Host"
        host = _host_of(sent[0])
        if host is not None and (_is_loopback(host) or host in self._hosts):
            return None
        return (
            f'the Host "{_quoted(sent[0])}" is no name of this server. If it is yours, name it in'
            " SERVICE_DAGSTER_HOSTS, or the whole address in SERVICE_DAGSTER_URL, and restart"
        )

    def _foreign_origin(self, connection: HTTPConnection) -> str | None:
        own = connection.headers["host"]
        for origin in connection.headers.getlist("origin"):
            if not self._is_own(origin, own):
                return (
                    f'the Origin "{_quoted(origin)}" is another site than "{_quoted(own)}". If a'
                    " proxy in front changes the Host, name its address in SERVICE_DAGSTER_URL"
                )
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            page = _web_address(origin)
            server = urlsplit(f"{page.scheme}://{host}")
            return _authority(page) in {_authority(server), self._public}
        except ValueError:  # `null`, or a port that is no number
            return False


def _foreign_site(connection: HTTPConnection) -> str | None:
    """Browsers say what their requests are for; a link that a person follows may come from afar.

    Frames may not: a foreign page could lay its own buttons over Dagster's.
    """
    headers = connection.headers
    site = headers.get("sec-fetch-site")
    if site in _OWN_SITES:
        return None
    followed = (
        connection.scope.get("method") in {"GET", "HEAD"}
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
    if followed:
        return None
    return f"the browser sends this for a page of another site (Sec-Fetch-Site: {_quoted(site)})"


def _form_post(connection: HTTPConnection) -> str | None:
    if connection.scope.get("method") != "POST":
        return None
    kinds = connection.headers.getlist("content-type")
    sent = [kind.partition(";")[0].strip().lower() for kind in kinds]
    if len(sent) == 1 and sent[0] in _PREFLIGHTED_TYPES:
        return None
    kind = f'the Content-Type "{_quoted(", ".join(kinds))}"' if kinds else "no Content-Type"
    return f"a POST with {kind} could be any page's form; send Content-Type: application/json"


def _mutation_by_get(connection: HTTPConnection) -> str | None:
    """Dagster runs whatever operation the address of a GET holds: an image's address can."""
    path = connection.scope["path"].rstrip("/")
    if connection.scope.get("method") not in {"GET", "HEAD"} or not path.endswith("/graphql"):
        return None
    if all(_only_queries(query) for query in connection.query_params.getlist("query")):
        return None
    return "by GET only GraphQL queries are answered; POST a mutation as application/json"


def _only_queries(document: str) -> bool:
    try:
        parsed = parse(document, no_location=True)
    except (GraphQLError, RecursionError):
        return False
    return all(
        definition.operation is OperationType.QUERY
        for definition in parsed.definitions
        if isinstance(definition, OperationDefinitionNode)
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _host_of(header: str) -> str | None:
    """Returns the name or address in a Host header, in lower case; None where it is malformed."""
    try:
        parts = urlsplit(f"//{header}")
        plain = parts.netloc == header and "@" not in header and parts.port != 0
    except ValueError:
        return None
    return parts.hostname if plain else None


def _web_address(text: str) -> SplitResult:
    """Returns the parts of an http or https address."""
    parts = urlsplit(text)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError(f"{text!r} is not an address that begins with http:// or https://")
    return parts


def _authority(parts: SplitResult) -> tuple[str | None, int | None]:
    """Returns host and port, the scheme's own where none is written.

    The scheme itself is left out: behind a proxy with TLS we are asked over http.
    """
    return parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme]


def _quoted(value: str | None) -> str:
    text = "".join(sign if sign.isprintable() else "?" for sign in value or "")
    return text[:_QUOTED_CHARACTERS]
