"""`explain`: an experiment's evidence as a sentence, tables and a plot."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.changes.experiment import experiment as reached
from cli.changes.experiment import first_look_of
from cli.changes.interval_plot import interval_plot
from cli.operations.options import data_dir_option
from domain.measure import level_of, measure_of
from domain.wording.effect import effect_line
from domain.wording.metrics import MetricRow, metric_rows
from domain.wording.tipping_point import tipping_sentence
from domain.wording.vouched import vouched_sentence


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
        first_look = None if as_json else first_look_of(handle)
    if text is None:
        waiting = "nothing was evaluated yet: no block of units has closed"
        raise click.ClickException(waiting if first_look is None else f"{waiting}. {first_look}")
    if as_json:
        click.echo(text)
    else:
        document = json.loads(text)
        _print(document if effect is None else {**document, "effect": json.loads(effect)})
        if first_look is not None:
            click.echo(first_look)


def _print(document: dict[str, Any]) -> None:
    console = Console()
    console.print(f"{document['sentence']}", style="bold", highlight=False, markup=False)
    if document["as_of"] is None:
        return
    console.print(_arms(document))
    if (plot := interval_plot(document)) is not None:
        console.print(plot, no_wrap=True, overflow="crop", crop=True)
    console.print(_metrics(metric_rows(document)))
    facts = Table(show_header=False)
    for name, value in _facts(document).items():
        facts.add_row(name, value)
    console.print(facts)


def _arms(document: Mapping[str, Any]) -> Table:
    table = Table(title=f"As of {document['as_of']}")
    arms, measure = document["arms"], measure_of(document)
    level = f"mean, {measure.per}" if measure.mean else "rate"
    for column in ("arm", "units", "conversions", level, "late"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for name in ("control", "treatment"):
        arm = arms[name]
        counts = (f"{arm['units']:,}", f"{arm['conversions']:,}")
        table.add_row(name, *counts, measure.level(level_of(arm)), str(arm["late"]))
    return table


def _metrics(rows: Sequence[MetricRow]) -> Table:
    table = Table(title="Metrics")
    for column in ("metric", "control", "treatment", "difference", "true difference", "says"):
        table.add_column(column, justify="left" if column in ("metric", "says") else "right")
    for row in rows:
        name = row.metric + ("" if row.is_target else ", guardrail")
        texts = (row.control, row.treatment, row.whole_difference, row.whole_interval)
        table.add_row(Text(name), *texts, row.state)
    return table


def _facts(document: Mapping[str, Any]) -> dict[str, str]:
    """Returns what else stands behind the verdict, in words; what there is not is left out."""
    totals, sessions, counts = document["totals"], document["sessions"], document["counts"]
    facts = {
        "change": ", ".join(change[:12] for change in document["change"]),
        "e-value": f"{totals['e_value']:.4g} (fires at {1 / document['policy']['level']:.4g})",
        "always-valid p": f"{totals['p_running_min']:.4g}",
        "best estimate": effect_line(document) or "",
        "yes or no": _yes_no(document.get("yes_no")),
        "candidate": _candidate(document, document.get("candidate")),
        **_gates(document["gates"]),
        "forgery": tipping_sentence(document) or "",
        "vouched for": vouched_sentence(document) or "",
        "units": ", ".join(f"{count:,} {name}" for name, count in counts.items() if count),
        "needed": "" if sessions["required"] is None else f"{sessions['required']:,.0f} units",
        "ended because": document["ended_because"] or "",
        "warnings": ", ".join(document["warnings"]),
        "digest": document["digest"][:16],
    }
    return {name: value for name, value in facts.items() if value}


def _interval(document: Mapping[str, Any], ci: list[float] | None) -> str:
    if ci is None:
        return ""
    measure = measure_of(document)
    return f"{measure.interval(*ci)}{f' {measure.per}' if measure.mean else ''}"


def _yes_no(yes_no: Mapping[str, Any] | None) -> str:
    """Returns a sentence on the share of units that had a mean's event."""
    if yes_no is None:
        return ""
    lift, low, high = (f"{100 * number:+.2f}" for number in (yes_no["lift"], *yes_no["ci"]))
    said = f"units with the event {lift} points, {low} to {high}"
    return f"{said} (e-value {yes_no['e_value']:.4g}; decides nothing)"


def _candidate(document: Mapping[str, Any], candidate: Mapping[str, Any] | None) -> str:
    if candidate is None:
        return ""
    waits = ", ".join([*candidate["waits_for"], *([] if candidate["holds"] else ["the test"])])
    since = f"keep, since {candidate['at']}: {_interval(document, candidate['ci'])}"
    return f"{since}; waits for {waits}" if waits else since


def _gates(gates: Mapping[str, Any]) -> dict[str, str]:
    share = gates.get("crossover_share")
    return {
        "interacting": ", ".join(
            str(cause).replace("_", " ") for cause in gates.get("interacting_because", ())
        ),
        "VIF": _number(gates["vif"]),
        "aliased with": ", ".join(gates["aliased_with"]),
        "sample ratio, e": _number(gates.get("sample_ratio_e")),
        "crossover": "" if share is None else f"{100 * share:.2f} % of units",
        "lateness, e": _number(gates.get("lateness_e")),
        "after the window, e": _number(gates.get("after_window_e")),
        **{
            f"{reason.replace('_', ' ')} left out, e": _number(e_value)
            for reason, e_value in gates.get("left_out_e", {}).items()
        },
        "interaction, e": _number(gates.get("interaction_e")),
    }


def _number(value: float | str | None) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.4g}"
