"""`POST /v1/traces`: a server's spans become requests and errors, whatever their encoding."""

import gzip
import json
import tomllib

import pytest
import yaml
from otlp_receiver.record import MOST_RECORDS

from storage.postgres.refusal import Invalid
from tests.api.otlp.exports import (
    BEGAN,
    BUILD,
    KINDS,
    PROTOBUF,
    encoded,
    receipt,
    sent,
    span,
    stored,
    traces,
)
from tests.clients.page import blocks, example, page
from tests.world import World

REQUEST = "http.server.request"
NO_UNIT = "without session.id or user.id, and so without a unit: a baggage processor"


@KINDS
@pytest.mark.parametrize("zipped", [False, True])
def test_a_server_span_is_a_request_and_an_error_where_it_failed(
    tenant, *, protobuf, zipped
) -> None:
    document = traces(
        [
            span(1, session__id="s-1", http__route="/checkout/[id]", user__id="ada"),
            span(2, session__id="s-2", failed=True, ms=20_000, url__path="/a?who=ada"),
            span(3, session__id="s-3", kind="SPAN_KIND_SERVER" if protobuf else 2, ms=-1),
            *(span(4 + kind, session__id="s-1", kind=kind) for kind in (0, 1, 3, 4, 5)),
        ],
        deployment__environment__name="staging",
    )
    content = encoded(document) if protobuf else json.dumps(document).encode()
    headers = tenant.write | (PROTOBUF if protobuf else {"Content-Type": "application/json"})
    # Exporters accept what they send, or anything.
    headers |= {"Accept": headers["Content-Type"]}
    if zipped:
        content, headers = gzip.compress(content), headers | {"Content-Encoding": "gzip"}
    answer = tenant.client.post("/v1/traces", content=content, headers=headers)
    assert (answer.status_code, receipt(answer)) == (200, (0, ""))
    events = stored(tenant)
    identity = f"{2:032x}{2:016x}"
    assert [(e.session_id, e.event, e.value, e.route, e.named) for e in events] == [
        ("s-1", REQUEST, 182_500_000, "/checkout/[id]", True),
        ("s-2", "error", None, "/a", False),
        ("s-2", REQUEST, 20_000_000_000, "/a", False),
        # A clock that was set back tells no duration.
        ("s-3", REQUEST, None, None, False),
    ]
    assert [e.event_id for e in events[1:3]] == [f"{identity}-error", identity]
    for event in events:
        assert (event.environment, event.commit_sha, event.trusted) == ("staging", BUILD, True)
        assert event.occurred_at.timestamp() == BEGAN / 10**9


@KINDS
def test_the_unit_is_the_session_or_the_user_s_pseudonym_or_what_the_project_names(
    tenant, *, protobuf
) -> None:
    spans = [
        span(1, session__id="s-1", visitor__id=7, user__id="ada"),
        span(2, user__id="ada", session__id=""),
        span(3, enduser__id="ada"),
        span(4, visitor__id=8),
        span(5, failed=True),
        # Instrumentations write a captured header as a list, of two where it was sent twice.
        span(6, http__request__header__session=["s-6"]),
        span(7, http__request__header__session=["s-6", "s-7"]),
    ]
    rejected, message = receipt(sent(tenant, traces(spans), protobuf=protobuf))
    assert (rejected, message.startswith(f"4 {NO_UNIT}")) == (4, True)
    assert "ada" not in message
    session, *users = sorted(stored(tenant), key=lambda event: event.event_id)
    assert session.session_id == "s-1"
    pseudonyms = {user.session_id for user in users}
    assert (len(users), len(pseudonyms)) == (2, 1)
    assert all(user.named for user in users)
    assert all(len(bytes.fromhex(pseudonym)) == 32 for pseudonym in pseudonyms)
    # A named attribute is the unit alone: units of two kinds would be those of nobody.
    known = {"visitor.id": ["7", "8"], "http.request.header.session": ["s-6"], "user.id": None}
    for unit, expected in known.items():
        other = World.new(tenant.store, tenant.client, f"{unit} {protobuf}")
        other.settings(span_unit=unit)
        rejected, message = receipt(sent(other, traces(spans), protobuf=protobuf))
        units = [event.session_id for event in stored(other)]
        assert units == expected if expected else set(map(len, units)) == {64}
        lacking = f"{rejected} without {unit}, as the setting span_unit has it"
        assert (rejected, message) == (len(spans) - len(units), lacking)


@KINDS
def test_spans_of_the_same_request_are_one(tenant, *, protobuf) -> None:
    trace, parent = f"{1:032x}", f"{99:016x}"
    local, remote = {"flags": 0x101}, {"flags": 0x301, "parentSpanId": parent}
    nested = local | {"parentSpanId": f"{1:016x}", "traceId": trace}
    unit = {"session__id": "s-1", "traceId": trace}
    held = {"session__id": "s-5", "traceId": f"{8:032x}"}
    spans = [
        # A mounted application has telemetry of its own, which names the route below the mount.
        span(1, ms=120, http__route="/sub", url__path="/sub/deep/3", **unit, **remote),
        span(2, ms=118, failed=True, http__route="/deep/{id}", session__id="s-1", **nested),
        # Middleware that reads the headers again has the same parent.
        span(3, ms=80, session__id="s-2", traceId=f"{3:032x}", **remote),
        span(4, ms=79, session__id="s-2", traceId=f"{3:032x}", http__route="/items/:id", **remote),
        # A page sends parallel requests under one parent.
        span(5, ms=60, session__id="s-3", traceId=f"{5:032x}", url__path="/a", **remote),
        span(6, ms=50, session__id="s-3", traceId=f"{5:032x}", url__path="/b", **remote),
        span(7, session__id="s-4", parentSpanId=parent, **local),
    ]
    # Of two requests with the same parent, whose library names itself, each has an inner span
    # below a middleware's, which may seem to end after it.
    of_library = [
        span(8, ms=40, url__path="/a", **held, **remote),
        span(9, ms=30, url__path="/a", **held, **remote),
        span(10, kind=1, traceId=f"{8:032x}", parentSpanId=f"{8:016x}"),
        span(11, ms=41, http__route="/a", **held, **local, parentSpanId=f"{10:016x}"),
        span(12, ms=20, failed=True, **held, **local, parentSpanId=f"{9:016x}"),
    ]
    # FastAPI below a mount reads headers again: where they name no trace it begins another.
    of_library += [span(number, ms=9, session__id="s-6", url__path="/sub/1") for number in (13, 14)]
    below = [span(15, ms=8, session__id="s-6", url__path="/sub/1", http__route="/sub/{id}")]
    document = traces(spans)
    (resource,) = document["resourceSpans"]
    resource["scopeSpans"] += [
        {"scope": {"name": "http"}, "spans": of_library},
        {"scope": {"name": "fastapi"}, "spans": below},
    ]
    rejected, message = receipt(sent(tenant, document, protobuf=protobuf))
    assert (rejected, message.startswith("1 whose enclosing span came in no export")) == (0, True)
    assert [(e.session_id, e.event, e.value, e.route) for e in stored(tenant)] == [
        ("s-1", "error", None, "/sub/deep/3"),
        ("s-1", REQUEST, 120_000_000, "/sub/deep/3"),
        ("s-2", REQUEST, 80_000_000, "/items/:id"),
        ("s-3", REQUEST, 60_000_000, "/a"),
        ("s-3", REQUEST, 50_000_000, "/b"),
        ("s-4", REQUEST, 182_500_000, None),
        ("s-5", "error", None, "/a"),
        ("s-5", REQUEST, 41_000_000, "/a"),
        ("s-5", REQUEST, 30_000_000, "/a"),
        ("s-6", REQUEST, 9_000_000, "/sub/1"),
        ("s-6", REQUEST, 9_000_000, "/sub/{id}"),
    ]


# What frameworks name as `http.route`, the path that was asked for, and the route in a graph.
ROUTES = [
    ("api/items/$", "/api/items/", "/api/items"),
    ("api/items/(?P<pk>[^/.]+)/stock/$", "/api/items/7/stock/", "/api/items/{pk}/stock"),
    (r"^v(?P<major>[0-9]{1,2})/(?:beta/)?x/$", "/v1/x/", "/v{major}/x"),
    ("^old/(?P<pk>[0-9]+)/$", "", "/old/{pk}"),
    ("items/<int:pk>/", "/items/3/", "/items/{pk}"),
    ("/files/<path:name>", "/files/a/b", "/files/{name:path}"),
    ("/opt{/:a}", "/opt", "/opt"),
    ("/opt{/:a}", "/opt/3", "/opt/:a"),
    ("/opt{/:a}", "", None),
    ("/arr/a,/arr/b", "/arr/b", "/arr/b"),
    (r"/^\/rx\/(\d+)$/", "/rx/4", "/rx/{value}"),
    (r"/items/:id(\d+)", "/items/3", "/items/:id"),
    ("/items/:id{[0-9]+}", "/items/3", "/items/:id"),
    ("/files/*path", "/files/a/b", "/files/{path:path}"),
    ("{*rest}", "/a/b", "/{rest:path}"),
    ("/items/{id:[0-9]+}", "/items/3", "/items/{id}"),
    ("/items/:id(.:format)", "/items/3", "/items/:id"),
    ("^a|b$", "/a", "/a"),
    ("/checkout/[id]", "/checkout/3", "/checkout/[id]"),
    ("/docs/[[...slug]]", "/docs", "/docs/[[...slug]]"),
    ("/cart", "/prefix/cart", "/cart"),
    # Neither optional parts nor brackets that nothing closes cost more than others.
    ("/a" + "{/b}" * 60, "/a", "/a"),
    ("^(" + "[a]" * 60, "/a", "/a"),
    ("/" + "{a}-" * 60, "/" + "-" * 200, "/" + "{a}-" * 60),
    ("/{from}-{to}", "/a-b", "/{from}-{to}"),
    # Frameworks that have no recipe: chi and Spring, ASP.NET, Slim, Symfony.
    ("/items/{id:[0-9]{1,3}}", "/items/3", "/items/{id}"),
    (r"items/{id:regex(^\d{{3}}$)}", "/items/123", "/items/{id}"),
    ("items/{id:int?}", "/items", "/items"),
    ("{controller=Home}/{action=Index}/{id?}", "/Cart/Show/4", "/{controller}/{action}/{id}"),
    ("/news[/{year:[0-9]{4}}[/{month}]]", "/news/2026", "/news/{year}"),
    (r"/blog/{page<\d+>?1}", "/blog/2", "/blog/{page}"),
    # Rocket, Go, Micronaut, Hapi, Nuxt, SvelteKit.
    ("/items/<id>/<rest..>?<page>", "/items/3/a/b", "/items/{id}/{rest:path}"),
    ("GET shop.example/items/{id}", "/items/3", "/items/{id}"),
    ("/items/{id}{?max,offset}", "/items/3", "/items/{id}"),
    ("/files/{name*2}", "/files/a/b", "/files/{name:path}"),
    ("/files/**:name", "/files/a/b", "/files/{name:path}"),
    ("/items/[[page=integer]]", "/items", "/items"),
    # An application that stands below a path; a route with a name of its own.
    ("items/{item}", "/shop/items/3", "/items/{item}"),
    ("app_item_show", "/items/3", "/items/3"),
    ("/items/:id.?:format?", "/items/3", "/items/3"),
]


def test_a_pattern_of_a_framework_is_the_route_of_a_graph(tenant) -> None:
    spans = [
        span(
            number, session__id=f"s-{number:02}", http__route=route, http__url=f"http://a{path}?b=1"
        )
        for number, (route, path, _) in enumerate(ROUTES, start=1)
    ]
    foreign = "3 whose http.route no graph can have: their path stands for it"
    assert receipt(sent(tenant, traces(spans), protobuf=True)) == (0, foreign)
    assert [event.route for event in stored(tenant)] == [route for *_, route in ROUTES]


@pytest.mark.parametrize(
    ("resource", "commit"),
    [
        ({"service__version": "20261128"}, None),
        ({"service__version": "1.4.2"}, None),
        ({"service__version": "0.1.dev3+gabc1234.d20261128"}, "abc1234"),
        ({"service__version": "0.1.post3.dev0+abc1234"}, "abc1234"),
        ({"service__version": "v1.4-3-gabc1234"}, "abc1234"),
        ({"service__version": "abc1234"}, "abc1234"),
        ({"service__version": "dpl_8abc", "vercel__sha": BUILD}, BUILD),
        ({"vcs__repository__ref__revision": BUILD}, BUILD),
    ],
)
def test_the_commit_of_a_build_is_read_as_its_tools_write_it(tenant, resource, commit) -> None:
    document = traces([span(session__id="s-1")], vcs__ref__head__revision="", **resource)
    sent(tenant, document, protobuf=False)
    assert [event.commit_sha for event in stored(tenant)] == [commit]


@pytest.mark.parametrize("name", ["http__response__status_code", "http__status_code"])
def test_an_answer_of_4xx_is_no_error_of_the_server(tenant, name) -> None:
    codes = (404, 403, 500, 503)
    spans = [span(c, session__id=f"s-{c}", failed=c != 500, **{name: c}) for c in codes]
    sent(tenant, traces(spans), protobuf=True)
    failed = [event.session_id for event in stored(tenant) if event.event == "error"]
    assert failed == ["s-500", "s-503"]


@pytest.mark.parametrize("number", [5, "5", "NOT_FOUND"])
def test_what_a_caller_of_grpc_did_wrong_is_no_error_of_the_server(tenant, number) -> None:
    name = "rpc__response__status_code" if number == "NOT_FOUND" else "rpc__grpc__status_code"
    codes = {"s-1": number, "s-2": 13, "s-3": 0}
    spans = [span(session__id=unit, failed=True, **{name: code}) for unit, code in codes.items()]
    for place, each in enumerate(spans, start=1):
        each["traceId"] = f"{place:032x}"
    sent(tenant, traces(spans), protobuf=True)
    failed = [event.session_id for event in stored(tenant) if event.event == "error"]
    assert failed == ["s-2", "s-3"]


@KINDS
def test_a_unit_that_is_no_visitor_is_refused_by_name(tenant, *, protobuf) -> None:
    own = [span(7, session__id=f"{7:032x}"), span(10, session__id=f"{10:016X}")]
    rejected, message = receipt(sent(tenant, traces(own), protobuf=protobuf))
    assert (rejected, message.count("session.id is refused: it is the trace's")) == (2, 1)
    # A span of two events that are refused counts once.
    long = traces([span(failed=True, session__id="s" * 129)])
    rejected, message = receipt(sent(tenant, long, protobuf=protobuf))
    assert (rejected, message.startswith("1 whose session.id is refused")) == (1, True)
    for name in ("trace_id", "spanId", "http.request.id", "k8s.pod.name", "host.name"):
        with pytest.raises(Invalid, match="of no trace, span or request"):
            tenant.settings(span_unit=name)
    assert stored(tenant) == []


def test_a_span_that_names_no_build_is_stored_and_warned_of(tenant) -> None:
    document = traces([span(session__id="s-1", failed=True)], vcs__ref__head__revision="")
    assert receipt(sent(tenant, document, protobuf=False)) == (
        0,
        f"1 stored without vcs.ref.head.revision: {REQUEST} that names no build exposes nobody",
    )


@KINDS
def test_an_export_of_too_many_spans_is_refused(tenant, *, protobuf) -> None:
    for document in (traces([{}] * 10_001), {"resourceSpans": [{}] * 10_001}):
        assert sent(tenant, document, protobuf=protobuf).status_code == 413
    fields = {"attributes": [{}] * 600_000}
    assert sent(tenant, traces([fields]), protobuf=protobuf).status_code == 413


def test_the_page_s_collector_sends_what_it_has_declared_where_the_service_takes_it() -> None:
    collector = yaml.safe_load(example("collector.yaml"))
    for pipeline in collector["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) == set(collector[kind])
    exporter = collector["exporters"]["otlphttp/reward"]
    # The exporter adds /v1/traces to its endpoint.
    assert exporter["endpoint"] == "${env:SERVICE_API_URL}"
    assert exporter["headers"] == {"x-service-project-key": "${env:SERVICE_WRITE_KEY}"}
    assert collector["processors"]["batch/reward"]["send_batch_max_size"] <= MOST_RECORDS


def test_the_page_s_settings_are_taken(tenant) -> None:
    (source,) = blocks(page("opentelemetry.md"), "toml")
    tenant.settings(**tomllib.loads(source))
