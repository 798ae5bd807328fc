"""The report of a run: the experiments that matter most now, each as a thumbnail and in full."""

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from domain.measure import measure_of
from domain.wording.headline import headline_of
from domain.wording.looks import looks_of
from orchestration.dagster.links import experiment_link
from orchestration.dagster.table import Rows, plain, unbroken
from orchestration.pictures import svg
from orchestration.pictures.interval import interval_picture
from orchestration.pictures.plot import evidence_plot
from orchestration.pictures.thumbnail import thumbnail
from storage.views.published import PublishedEvidence
from storage.views.ramp import Ramp

# Each materialization's record is kept, and a picture takes some 10 KB.
MOST_PICTURES = 4
_MOST_LATELY = 2
# Fewer letters of Markdown than this are shown in place, more only upon a click.
_IN_PLACE = 1_000


def chosen(
    nearest: Sequence[PublishedEvidence], lately: Sequence[PublishedEvidence]
) -> list[PublishedEvidence]:
    """Returns the experiments to show: some that were decided last, then those nearest to it.

    Args:
        nearest: Open experiments, the nearest to an answer first.
        lately: Decided experiments, the last first; they fill the places that are left.
    """
    first = [*lately[:_MOST_LATELY], *nearest, *lately[_MOST_LATELY:]]
    return first[:MOST_PICTURES]


def report(
    published: Sequence[PublishedEvidence], ramps: Mapping[str, Ramp]
) -> Iterator[tuple[str, dg.MarkdownMetadataValue]]:
    """Yields metadata: each experiment's sentence and picture; and a plot that compares all.

    Args:
        published: The experiments.
        ramps: Their units over time and steps of the ramp, by experiment.
    """
    for experiment in published:
        yield experiment.experiment_id, dg.MetadataValue.md(_in_short(experiment))
        ramp = ramps.get(experiment.experiment_id)
        picture = interval_picture(experiment.document, experiment.contract, ramp)
        if picture is not None:
            image = svg.as_markdown(picture, alt=experiment.experiment_id)
            yield f"{experiment.experiment_id} in full", dg.MetadataValue.md(image)
    if len(published) > 1 and (
        plot := evidence_plot([experiment.document for experiment in published])
    ):
        yield "compared", dg.MetadataValue.md(svg.as_markdown(plot, alt="evidence"))


def _in_short(experiment: PublishedEvidence) -> str:
    """Returns an experiment's sentence and thumbnail, as far as they are shown in place."""
    picture = thumbnail(experiment.document, experiment.contract)
    image = (
        "" if picture is None else f"\n\n{svg.as_markdown(picture, alt=experiment.experiment_id)}"
    )
    link = experiment_link(experiment.experiment_id)
    sentence = plain(experiment.document["sentence"])
    room = _IN_PLACE - 1 - len(image) - len(link) - 2
    shown = sentence if len(sentence) <= room else f"{sentence[: max(room - 1, 0)]}…"
    return f"{link}: {shown}{image}"


def evidence_table(published: Sequence[PublishedEvidence]) -> Rows:
    """Returns a row for each experiment: its headline, evidence, units and sentence."""
    return [_row(experiment) for experiment in published]


def _row(experiment: PublishedEvidence) -> dict[str, str]:
    document, measure = experiment.document, measure_of(experiment.document)
    headline = headline_of(experiment.contract, candidate=document.get("candidate") is not None)
    ci = document["totals"]["ci"]
    looks = looks_of(document)
    return {
        "experiment": experiment_link(experiment.experiment_id),
        "answer": unbroken(headline.text),
        # At 1 the test fires.
        "e ÷ threshold": f"{looks[-1].reached:.2g}" if looks else "",
        "units": f"{document['sessions']['accumulated']:,}",
        "interval": "" if ci is None else unbroken(measure.interval(*ci)),
        "in words": plain(document["sentence"]),
    }
