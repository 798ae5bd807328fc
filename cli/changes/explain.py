"""`explain`: an experiment's evidence as a sentence, tables and a plot."""

from datetime import datetime
from pathlib import Path

import click
from msgspec import structs
from rich.console import Console
from rich.text import Text

from cli.changes.experiment import experiment as reached
from cli.changes.experiment import registration_of, situation_of
from cli.changes.interval_plot import interval_plot
from cli.operations.options import data_dir_option
from cli.operations.remote import decoded
from cli.table import table
from domain.contract import Contract
from domain.document import time_text
from domain.evidence.document import Evidence, evidence_of, looked_at
from domain.evidence.effect import Effect
from domain.evidence.results import Candidate, YesNo
from domain.figures import listed
from domain.measure import measure_of, typical_lift
from domain.wording.effect import effect_line, learned_line, training_sentence
from domain.wording.metrics import metric_rows
from domain.wording.tipping_point import tipping_sentence
from domain.wording.vouched import vouched_sentence
from domain.wording.warnings import warning_sentences


@click.command()
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="Print the evidence document.")
@data_dir_option
def explain(experiment: str, as_json: bool, data_dir: Path) -> None:
    """Show the evidence behind a verdict.

    Asks SERVICE_API_URL with the project key in SERVICE_PROJECT_KEY where the address is set,
    else the store.
    """
    with reached(experiment, data_dir) as handle:
        text = handle.evidence()
        # The evidence of a decided verdict stands; its effect may have been measured since.
        effect = None if as_json or text is None else handle.effect()
        registration = None if as_json else registration_of(handle)
        beside = situation_of(registration, looked_at=text is not None)
        is_final = not as_json and decoded(handle.contract().text, Contract).decided
    if text is None:
        if as_json:
            raise click.ClickException("nothing was evaluated yet")
        click.echo(beside or "Nothing was evaluated yet.")
        return
    if as_json:
        click.echo(text)
        return
    document = evidence_of(text)
    if document is not None:
        said = " ".join(filter(None, [document.sentence, beside]))
        Console().print(said, style="bold", highlight=False, markup=False)
    if (evidence := looked_at(document)) is not None:
        _print(evidence, effect or evidence.effect, is_final=is_final)


def needed(evidence: Evidence) -> str:
    """Returns how many units are needed, and for what: a candidate waits for its guardrails."""
    required, candidate = evidence.sessions.required, evidence.candidate
    if required is None or (candidate is not None and not candidate.waits_for):
        return ""
    aim = (
        f"find a {typical_lift(evidence.policy.rho.day)} change"
        if candidate is None
        else f"be sure that {listed(candidate.waits_for)} did not get worse"
    )
    return f"about {required:,.0f} {evidence.policy.unit}s to {aim}"


def _print(evidence: Evidence, effect: Effect | None, *, is_final: bool) -> None:
    console, measure = Console(), measure_of(evidence)
    arms = (("control", evidence.arms.control), ("treatment", evidence.arms.treatment))
    counts = (
        (name, f"{arm.units:,}", f"{arm.conversions:,}", measure.level(arm.level), str(arm.late))
        for name, arm in arms
    )
    level = f">{measure.word}" + (f", {measure.per}" if measure.mean else "")
    names = ("arm", ">units", ">conversions", level, ">late")
    console.print(table(counts, *names, title=f"As of {_time(evidence.as_of)}"))
    if (plot := interval_plot(evidence)) is not None:
        console.print(plot, no_wrap=True, overflow="crop", crop=True)
    metrics = (
        (
            Text(row.metric + ("" if row.part == "target" else f", {row.part}")),
            *(row.control, row.treatment, row.whole_difference, row.whole_interval, row.state),
        )
        for row in metric_rows(evidence)
    )
    names = ("metric", ">control", ">treatment", ">difference", ">true difference", "says")
    console.print(table(metrics, *names, title="Metrics"))
    checks = (
        (
            check.name,
            "; ".join(filter(None, (check.word(is_final=is_final), check.number, check.detail))),
        )
        for check in evidence.gates.checks
    )
    console.print(table(checks, title="Is the comparison fair?"))
    console.print(table(_facts(structs.replace(evidence, effect=effect)).items()))


def _time(at: datetime | None) -> str:
    return "" if at is None else time_text(at)


def _facts(evidence: Evidence) -> dict[str, str]:
    """Returns what else stands behind the verdict, in words; what there is not is left out."""
    totals = evidence.totals
    units = structs.asdict(evidence.counts)
    facts = {
        "change": ", ".join(change[:12] for change in evidence.change),
        "e-value": f"{totals.e_value:.4g} (fires at {1 / evidence.policy.level:.4g})",
        "always-valid p": f"{totals.p_running_min:.4g}",
        "best estimate": effect_line(evidence) or "",
        "learned estimate": learned_line(evidence.effect) or "",
        "training": training_sentence(evidence.effect, retrospective=evidence.retrospective) or "",
        "yes or no": _yes_no(evidence.yes_no),
        "history": evidence.adjustment.sentence if evidence.adjustment else "",
        "candidate": _candidate(evidence, evidence.candidate),
        "aliased with": ", ".join(evidence.gates.aliased_with),
        "forgery": tipping_sentence(evidence) or "",
        "vouched for": vouched_sentence(evidence.vouched) or "",
        "units": ", ".join(f"{count:,} {name}" for name, count in units.items() if count),
        "left out": "; ".join(
            f"{row.reason}: {row.control:,} {row.of} of control, {row.treatment:,} of treatment"
            for row in evidence.left_out
        ),
        "needed": needed(evidence),
        "ended because": evidence.ended_because or "",
        "warnings": " ".join(warning_sentences(evidence)),
        "digest": evidence.digest[:16],
    }
    return {name: value for name, value in facts.items() if value}


def _yes_no(yes_no: YesNo | None) -> str:
    """Returns a sentence on the share of units that had a mean's event."""
    if yes_no is None:
        return ""
    lift, low, high = (f"{100 * number:+.2f}" for number in (yes_no.lift, *yes_no.ci))
    said = f"units with the event {lift} points, {low} to {high}"
    return f"{said} (e-value {yes_no.e_value:.4g}; decides nothing)"


def _candidate(evidence: Evidence, candidate: Candidate | None) -> str:
    if candidate is None:
        return ""
    surplus = evidence.surplus
    others = {
        "the test": candidate.holds,
        "the surplus line": surplus is None or surplus.holds,
        "its stand": candidate.stand is None or candidate.stand.holds,
    }
    waits = ", ".join(
        [*candidate.waits_for, *(name for name, holds in others.items() if not holds)]
    )
    measure = measure_of(evidence)
    per = f" {measure.per}" if measure.mean else ""
    since = f"keep, since {_time(candidate.at)}: {measure.interval(*candidate.ci)}{per}"
    return f"{since}; waits for {waits}" if waits else since
