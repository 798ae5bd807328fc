"""The report of a run: the experiments that matter most now, each as a sentence and a picture."""

import base64
from collections import Counter
from collections.abc import Iterator, Sequence

import dagster as dg

from domain.drawing.interval import thumbnail
from domain.wording.picture import picture_of
from orchestration.dagster.table import plain
from orchestration.outbound.links import experiment_link
from storage.views.published import PublishedEvidence

# Each materialization's record is kept, and an entry takes up to a kilobyte.
MOST_SHOWN = 12
# Fewer letters of Markdown than this are shown in place, more only upon a click.
_IN_PLACE = 1_000


def report(published: Sequence[PublishedEvidence]) -> Iterator[tuple[str, dg.MetadataValue]]:
    """Yields metadata, by the change's title: its sentence, VIF, link and picture."""
    names = Counter(map(_name, published))
    for experiment in published:
        name = _name(experiment)
        several = f" {experiment.experiment_id}" if names[name] > 1 else ""
        yield f"{name}{several}", dg.MetadataValue.md(_in_short(experiment))


def _name(experiment: PublishedEvidence) -> str:
    """Returns the title of the change in quotes, which no name of ours has, else the change."""
    changes = experiment.document.change
    if experiment.title and not any("=" in change for change in changes):
        return f"“{experiment.title}”"
    return " and ".join(changes) or experiment.experiment_id


def _in_short(experiment: PublishedEvidence) -> str:
    """Returns an experiment as far as Dagster shows it in place."""
    picture = picture_of(experiment.document, experiment.contract)
    drawn = None if picture is None else thumbnail(picture)
    end = f" {_identified(experiment)} {experiment_link(experiment.experiment_id)}"
    if drawn is not None:
        image = base64.b64encode(drawn.encode()).decode()
        end += f"\n\n![{experiment.experiment_id}](data:image/svg+xml;base64,{image})"
    sentence = plain(experiment.document.sentence)
    room = _IN_PLACE - 1 - len(end)
    shown = sentence if len(sentence) <= room else f"{sentence[: max(room - 1, 0)]}…"
    return shown + end


def _identified(experiment: PublishedEvidence) -> str:
    """Returns the VIF, and the changes that the arms differ by as well."""
    gates = experiment.document.gates
    vif = "∞" if gates.vif == "inf" else "unknown" if gates.vif is None else f"{gates.vif:.2f}"
    others = plain(", ".join(gates.aliased_with))
    return f"VIF {vif}, aliased with {others}." if others else f"VIF {vif}."
