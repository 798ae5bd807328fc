"""The report of a wait: Markdown for a pipeline's summary, JUnit for its view of tests."""

from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from cli.changes.interval_plot import interval_plot
from cli.changes.outcome import Exit, Outcome, Poll
from domain.measure import Measure, level_of, measure_of
from domain.wording.effect import effect_line

_WORDS = {
    Exit.KEEP: "Keep",
    Exit.ROLLBACK: "Roll back",
    Exit.ITERATE: "Iterate",
    Exit.CLOSED: "No answer",
    Exit.BREACHED: "A guardrail is breached",
    Exit.TIMEOUT: "Can't say yet",
    Exit.FAULT: "The set-up is at fault",
}
# What JUnit has for an end; a pass has nothing.
_ELEMENTS = {
    Exit.ROLLBACK: "failure",
    Exit.ITERATE: "failure",
    Exit.BREACHED: "failure",
    Exit.FAULT: "error",
    Exit.CLOSED: "skipped",
    Exit.TIMEOUT: "skipped",
}


def markdown(poll: Poll, end: Outcome, *, address: str | None) -> str:
    """Returns the report of a wait for a person.

    Args:
        poll: The last poll.
        end: How it ended.
        address: The experiment's page, where one is known.
    """
    parts = [f"## {_title(poll, end)}", _plain(end.because), _plain(poll.sentence)]
    if poll.evidence:
        parts += ["\n".join(_table(poll.evidence))]
    if guardrails := poll.evidence.get("guardrails"):
        parts += [
            "\n".join(
                f"- {_plain(guardrail['metric'])}: {guardrail_state(guardrail)}"
                for guardrail in guardrails
            )
        ]
    if (plot := interval_plot(poll.evidence)) is not None:
        parts += [f"```text\n{plot.plain.rstrip()}\n```"]
    if address is not None:
        parts += [f"[The evidence]({address})"]
    return "\n\n".join(parts) + "\n"


def _title(poll: Poll, end: Outcome) -> str:
    accepted = end.exit is Exit.KEEP and poll.contract["verdict"] != "keep"
    word = "Go on" if accepted else _WORDS[end.exit]
    if not poll.evidence:
        return word
    return f"{word}: {_plain(poll.evidence['policy']['target']['name'])}"


def _table(evidence: Mapping[str, Any]) -> Iterator[str]:
    measure, arms = measure_of(evidence), evidence["arms"]
    yield f"| arm | {measure.unit}s | conversions | {'mean' if measure.mean else 'rate'} |"
    yield "| --- | ---: | ---: | ---: |"
    for name in ("treatment", "control"):
        arm = arms[name]
        level = measure.level(level_of(arm))
        yield f"| {name} | {arm['units']:,} | {arm['conversions']:,} | {level} |"
    if (ci := evidence["totals"]["ci"]) is not None:
        yield ""
        yield f"Treatment minus control: {_interval(measure, ci)}, however often one looks."
    if (effect := effect_line(evidence)) is not None:
        yield ""
        yield f"Best estimate: {effect}."


def _interval(measure: Measure, ci: list[float]) -> str:
    low, high = ci
    relative = f" ({measure.relative(low)} to {measure.relative(high)})" if measure.control else ""
    return f"between {measure.difference(low)} and {measure.difference(high)}{relative}"


def guardrail_state(guardrail: Mapping[str, Any]) -> str:
    """Returns the state of a guardrail, in words."""
    if guardrail["breached_at"] is not None:
        return f"breached {guardrail['breached_at']}"
    if guardrail["non_inferior_at"] is not None:
        return f"no worse than its margin, since {guardrail['non_inferior_at']}"
    return "not known yet"


def _plain(text: str) -> str:
    """Returns text that Markdown takes for nothing else: metrics are named by anybody."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#&~" else sign for sign in text)


def junit(poll: Poll, end: Outcome) -> bytes:
    """Returns a suite: a case for the experiment, and one for each guardrail.

    A verdict against the change and a breach are failures, a fault of the set-up is an error, and
    what nobody knows yet is skipped.
    """
    guardrails = poll.evidence.get("guardrails", [])
    suite = Element("testsuite", name="deploy-reward")
    name = poll.evidence.get("policy", {}).get("target", {}).get("name", "verdict")
    _case(suite, name, _ELEMENTS.get(end.exit), end.because, poll.sentence)
    for guardrail in guardrails:
        said = guardrail_state(guardrail)
        passed = guardrail["non_inferior_at"] is not None
        kind = "failure" if guardrail["breached_at"] is not None else None if passed else "skipped"
        _case(suite, f"guardrail {guardrail['metric']}", kind, said, said)
    for count, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(count, str(len(suite.findall(f"testcase/{kind}"))))
    suite.set("tests", str(1 + len(guardrails)))
    indent(suite)
    return tostring(suite, encoding="utf-8", xml_declaration=True)


def _case(suite: Element, name: str, kind: str | None, message: str, text: str) -> None:
    case = SubElement(suite, "testcase", classname="deploy_reward", name=_printable(name))
    if kind is not None:
        SubElement(case, kind, message=_printable(message)).text = _printable(text)


def _printable(text: str) -> str:
    """Returns text without the characters that XML has no word for."""
    return "".join(sign for sign in text if sign.isprintable() or sign in "\t\n")
