"""The report of a wait: Markdown for a pipeline's summary, JUnit for its view of tests."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from cli.changes.interval_plot import interval_plot
from cli.changes.outcome import Exit, Outcome, Poll
from domain.evidence.document import Evidence
from domain.measure import measure_of
from domain.wording.effect import effect_line
from domain.wording.metrics import MetricRow, metric_rows

_WORDS = {
    Exit.KEEP: "Keep",
    Exit.ROLLBACK: "Roll back",
    Exit.ITERATE: "Iterate",
    Exit.CLOSED: "No answer",
    Exit.BREACHED: "A guardrail is breached",
    Exit.TIMEOUT: "Can't say yet",
    Exit.FAULT: "The set-up is at fault",
}
# JUnit's elements by ending; a pass has none.
_ELEMENTS = {
    Exit.ROLLBACK: "failure",
    Exit.ITERATE: "failure",
    Exit.BREACHED: "failure",
    Exit.FAULT: "error",
    Exit.CLOSED: "skipped",
    Exit.TIMEOUT: "skipped",
}
_CASES = {"fault": "failure", "unknown": "skipped", "ok": None}
_INTERVALS = "You may look as often as you like: the intervals allow for that."


def markdown(poll: Poll, end: Outcome, *, address: str | None) -> str:
    """Returns the report of a wait for a person."""
    accepted = end.exit is Exit.KEEP and poll.contract.verdict != "keep"
    title, evidence = "Go on" if accepted else _WORDS[end.exit], poll.numbers
    if evidence is not None:
        if end.exit in {Exit.BREACHED, Exit.TIMEOUT}:
            title = _plain(evidence.headline)
        if end.exit is not Exit.BREACHED:
            title = f"{title}: {_plain(evidence.policy.target.name)}"
    parts = [f"## {title}", _plain(end.because), _plain(poll.sentence)]
    if evidence is not None:
        parts += ["\n".join(_table(evidence)), "\n".join(_metrics(metric_rows(evidence)))]
        parts += [_INTERVALS]
        if (plot := interval_plot(evidence)) is not None:
            parts += [f"```text\n{plot.plain.rstrip()}\n```"]
    if address is not None:
        parts += [f"[The evidence]({address})"]
    return "\n\n".join(parts) + "\n"


def _table(evidence: Evidence) -> Iterator[str]:
    measure, arms = measure_of(evidence), evidence.arms
    yield f"| arm | {measure.unit}s | conversions | {measure.word} |"
    yield "| --- | ---: | ---: | ---: |"
    for name, arm in (("treatment", arms.treatment), ("control", arms.control)):
        level = measure.level(arm.level)
        yield f"| {name} | {arm.units:,} | {arm.conversions:,} | {level} |"
    if (effect := effect_line(evidence)) is not None:
        yield ""
        yield f"Best estimate: {effect}."


def _metrics(rows: Sequence[MetricRow]) -> Iterator[str]:
    yield "| metric | control | treatment | difference | true difference | state |"
    yield "| --- | ---: | ---: | ---: | ---: | --- |"
    for row in rows:
        name = _plain(row.metric) + ("" if row.part == "target" else f" ({row.part})")
        between = row.whole_interval
        texts = (name, row.control, row.treatment, row.whole_difference, between, row.state)
        yield f"| {' | '.join(texts)} |"


def _plain(text: str) -> str:
    """Returns text that Markdown takes for nothing else: metrics are named by anybody."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#&~" else sign for sign in text)


def junit(poll: Poll, end: Outcome) -> bytes:
    """Returns a suite: a case for the experiment, and a case for each guardrail.

    A verdict against the change and a breach are failures, a fault of the set-up is an error, and
    numbers that are not known yet are skipped.
    """
    evidence = poll.numbers
    rows = [] if evidence is None else metric_rows(evidence)
    guardrails = [row for row in rows if row.is_guardrail]
    suite = Element("testsuite", name="deploy-reward")
    name = "verdict" if evidence is None else evidence.policy.target.name
    said = [poll.sentence, *(_as_text(row) for row in rows if not row.is_guardrail)]
    _case(suite, name, _ELEMENTS.get(end.exit), end.because, "\n".join(said))
    for row in guardrails:
        _case(suite, f"guardrail {row.metric}", _CASES[row.tone], row.state, _as_text(row))
    for count, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"testcase/{kind}"))))
    suite.set("tests", str(1 + len(guardrails)))
    indent(suite)
    return tostring(suite, encoding="utf-8", xml_declaration=True)


def _as_text(row: MetricRow) -> str:
    between = f"true difference {row.whole_interval}" if row.interval else ""
    return ", ".join(filter(None, (row.state, row.change, row.whole_difference, between)))


def _case(suite: Element, name: str, kind: str | None, message: str, text: str) -> None:
    case = SubElement(suite, "testcase", classname="deploy_reward", name=_printable(name))
    if kind is not None:
        SubElement(case, kind, message=_printable(message)).text = _printable(text)


def _printable(text: str) -> str:
    """Returns text without the characters that XML has no word for."""
    return "".join(sign for sign in text if sign.isprintable() or sign in "\t\n")
