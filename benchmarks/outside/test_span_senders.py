"""The official SDKs of OpenTelemetry send spans as the page says, and each is counted once."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from benchmarks.repository.private_service import private_service
from storage.tenants.keys import KeyKind
from storage.tenants.setting_changes import apply_settings
from tests.api.otlp.exports import BUILD
from tests.clients.page import blocks, example, page
from tests.processes.registry import node_folder, node_program, output_of, python_of

pytestmark = [pytest.mark.process, pytest.mark.world]

PAGE = page("opentelemetry.md")
# Of 200 requests of 100 visitors every tenth fails; each has a client's span, which is no request.
PYTHON = """
from opentelemetry import baggage
from opentelemetry.trace import SpanKind, StatusCode
tracer = trace.get_tracer("shop")
for number in range(200):
    context = baggage.set_baggage("session.id", f"s-{number // 2}")
    with tracer.start_as_current_span("GET", context, kind=SpanKind.SERVER) as span:
        span.set_attribute("http.route", "/cart")
        tracer.start_span("SELECT", kind=SpanKind.CLIENT).end()
        if number % 10 == 0:
            span.set_status(StatusCode.ERROR)
provider.shutdown()
"""
# The same spans exported again, as after an answer that was lost on its way.
AGAIN = """
from opentelemetry.sdk.trace.export import SpanExporter
class Twice(SpanExporter):
    def __init__(self):
        self.inner = OTLPSpanExporter()
    def export(self, spans):
        self.inner.export(spans)
        return self.inner.export(spans)
    def shutdown(self):
        self.inner.shutdown()
"""
JAVASCRIPT = """
import { ROOT_CONTEXT, SpanKind, SpanStatusCode, propagation, trace } from "@opentelemetry/api";
const tracer = trace.getTracer("shop");
for (let number = 0; number < 200; number += 1) {
  const visitor = propagation.createBaggage({ "session.id": { value: `s-${number >> 1}` } });
  const context = propagation.setBaggage(ROOT_CONTEXT, visitor);
  const attributes = { "http.route": "/cart" };
  const span = tracer.startSpan("GET", { kind: SpanKind.SERVER, attributes }, context);
  tracer.startSpan("SELECT", { kind: SpanKind.CLIENT }, trace.setSpan(context, span)).end();
  if (number % 10 === 0) span.setStatus({ code: SpanStatusCode.ERROR });
  span.end();
}
await sdk.shutdown();
"""
PAGE_PYTHON = example("spans.py")
FORMS = {24: "otlp-proto", 20: "otlp-http"}
# By the major of Node.js.
PAGE_NODE = {
    major: source.replace("otlp-proto", FORMS[major])
    for major, source in zip(FORMS, map(example, ("spans-3.mjs", "spans-2.mjs")), strict=True)
}
INSTALLS = {
    major: line.replace("otlp-proto", FORMS[major]).split()[2:]
    for major, line in zip(FORMS, blocks(PAGE, "sh")[1].splitlines(), strict=True)
}
COUNTED = text(
    "SELECT event, count(*), count(DISTINCT event_id), count(DISTINCT session_id),"
    " bool_and(commit_sha = :build AND route = '/cart' AND environment = 'production')"
    " FROM runtime_events GROUP BY event ORDER BY event"
)
# What the units' requests took, as the pipeline adds it up and as the log holds it.
SUMS = text(
    "SELECT (SELECT sum(value) FROM amounts WHERE metric = 'latency') AS counted,"
    " (SELECT sum(value) FROM (SELECT DISTINCT event_id, value FROM runtime_events) AS e) AS sent"
)


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    names = ("exporter-otlp-proto-http", "processor-baggage")
    packages = [f"opentelemetry-{name}" for name in names]
    return python_of(tmp_path_factory.mktemp("python"), packages)


@pytest.mark.parametrize(
    ("needs", "program", "sendings"),
    [
        pytest.param("python", PAGE_PYTHON + PYTHON, 1, id="Python"),
        pytest.param(
            "python",
            PAGE_PYTHON.replace("provider = ", AGAIN + "provider = ").replace(
                "BatchSpanProcessor(OTLPSpanExporter())", "BatchSpanProcessor(Twice())"
            )
            + PYTHON,
            2,
            id="Python, again",
        ),
        pytest.param(24, PAGE_NODE[24] + JAVASCRIPT, 1, id="Node.js 24 in protobuf"),
        pytest.param(20, PAGE_NODE[20] + JAVASCRIPT, 1, id="Node.js 20 in JSON"),
    ],
)
def test_as_many_spans_are_stored_as_were_sent_and_a_repeated_export_counts_once(
    needs, program, sendings, request, tmp_path
) -> None:
    if needs == "python":
        words = [request.getfixturevalue(needs), "-c", program]
    else:
        node_folder(tmp_path, INSTALLS[needs])
        (tmp_path / "program.mjs").write_text(program)
        words = [node_program(tmp_path.parent, needs), "program.mjs"]
    latency = {"sources": ["http.server.request"], "kind": "mean", "better": "lower", "cap": 1e6}
    with private_service(datetime.now(UTC)) as service:
        with service.engine.begin() as connection:
            chosen = {"default_metric": "latency", "metrics": {"latency": latency}}
            apply_settings(connection, service.project.project_id, chosen)
        service.deploy({"commit": {"sha": "abcdef1"}})
        service.deploy({"commit": {"sha": BUILD}, "diff": {"base_commit": "abcdef1", "files": []}})
        service.reward("POST", "/register", {"treatment_commit": BUILD})
        service.clock.move(datetime.now(UTC) + timedelta(minutes=1))
        address = str(service.client.base_url).rstrip("/")
        key = service.project.keys[KeyKind.WRITE]
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": address,
            "OTEL_EXPORTER_OTLP_HEADERS": f"x-service-project-key={key}",
            "OTEL_RESOURCE_ATTRIBUTES": f"vcs.ref.head.revision={BUILD}",
        }
        output_of(words, folder=tmp_path, **variables)
        service.clock.move(datetime.now(UTC) + timedelta(days=1))
        service.look()
        with service.engine.connect() as connection:
            counted = [tuple(row) for row in connection.execute(COUNTED, {"build": BUILD})]
            sums = connection.execute(SUMS).one()
    assert counted == [
        ("error", 20 * sendings, 20, 20, True),
        ("http.server.request", 200 * sendings, 200, 100, True),
    ]
    assert sums.counted == sums.sent > 0
