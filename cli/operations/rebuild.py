"""`rebuild`: computes all derived tables anew from raw events, beside the served ones."""

import json
from pathlib import Path

import click
from rich.console import Console

from cli.operations.evaluate import named_where_gone, print_contracts
from cli.operations.options import data_dir_option, json_option
from cli.operations.store import store_engine
from domain.contract import contract_of
from orchestration.pipeline.full_rebuild import Rebuilt, rebuild_all
from storage.lake.lake import store_lake
from storage.upkeep.day_check import Difference
from storage.views.published import all_contracts

# Rebuilt, but some decided verdict is not what the log gives now, or an experiment stays
# as it was.
DECIDED_OTHERWISE = 4
LEFT_OUT = 5


@click.command()
@json_option
@data_dir_option
@click.pass_context
def rebuild(ctx: click.Context, as_json: bool, data_dir: Path) -> None:
    """Compute all anew from raw events, and swap it in at once.

    Verdicts are served throughout, and `forget` waits for the end. Refused, with exit 3, where raw
    events that a verdict rests on are gone. A decided verdict is never rewritten: where the log
    gives another verdict now, it is named, and the exit code is 4. So is an experiment that cannot
    be computed, as where a file of the lake is not as it is listed: its served verdict stays, and
    the exit code is 5.
    """
    with store_engine(data_dir) as engine:
        with named_where_gone(), Console(stderr=True).status("Computing all from the log"):
            lake = store_lake(engine, data_dir=data_dir)
            rebuilt = rebuild_all(engine, waiting=_say_waiting, lake=lake)
        with engine.begin() as connection:
            contracts = all_contracts(connection)
    print_contracts([contract_of(text) for text in contracts], as_json=as_json)
    for experiment_id, sentence in rebuilt.left_out.items():
        click.echo(f"{experiment_id} was not rebuilt. {sentence}", err=True)
    for difference in rebuilt.differences:
        click.echo(_sentence(difference), err=True)
    ctx.exit(_exit_code(rebuilt))


def _say_waiting() -> None:
    click.echo("Another rebuild is under way: this begins when that has ended.", err=True)


def _exit_code(rebuilt: Rebuilt) -> int:
    if not all(difference.in_evidence_alone for difference in rebuilt.differences):
        return DECIDED_OTHERWISE
    return LEFT_OUT if rebuilt.left_out else 0


def _sentence(difference: Difference) -> str:
    name, audit = difference.experiment_id, f"`deploy-reward audit {difference.experiment_id}`"
    if difference.in_evidence_alone:
        return (
            f"{name}: the log gives the same verdict with other evidence, as another release may;"
            f" what is served stays. {audit} compares both."
        )
    return (
        f"{name} is decided {_answer(difference.served)}, but the log gives"
        f" {_answer(difference.rebuilt)} now; the decided verdict stays as it is served."
        f" {audit} compares both."
    )


def _answer(contract: str) -> str:
    members = json.loads(contract)
    reason = f" ({members['abstain_reason']})" if members["abstain_reason"] else ""
    lift = "" if members["lift"] is None else f" with a lift of {100 * members['lift']:+.4f} points"
    clock = "" if members["power_state"]["decided"] else ", still open"
    return f"{members['verdict']}{reason}{lift}{clock}"
