"""The exhibit: the experiments that matter most now, each as a thumbnail and in full."""

from collections.abc import Iterator, Sequence

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
from storage.views.answers import Standing

# Each materialization's record is kept, and a picture takes some 10 KB.
MOST_PICTURES = 4
_MOST_LATELY = 2
# Fewer letters of Markdown than this are shown in place, more only upon a click.
_IN_PLACE = 1_000


def chosen(nearest: Sequence[Standing], lately: Sequence[Standing]) -> list[Standing]:
    """Returns the experiments to show: some that were decided last, then those nearest to it.

    Args:
        nearest: Open experiments, the nearest to an answer first.
        lately: Decided experiments, the last first; they fill the places that are left.
    """
    first = [*lately[:_MOST_LATELY], *nearest, *lately[_MOST_LATELY:]]
    return first[:MOST_PICTURES]


def exhibit(standings: Sequence[Standing]) -> Iterator[tuple[str, dg.MarkdownMetadataValue]]:
    """Yields entries of metadata: of each experiment what it says and its picture; all compared."""
    for one in standings:
        yield one.experiment_id, dg.MetadataValue.md(_in_short(one))
        if (picture := interval_picture(one.document, one.contract)) is not None:
            image = svg.as_markdown(picture, alt=one.experiment_id)
            yield f"{one.experiment_id} in full", dg.MetadataValue.md(image)
    if len(standings) > 1 and (plot := evidence_plot([one.document for one in standings])):
        yield "compared", dg.MetadataValue.md(svg.as_markdown(plot, alt="evidence"))


def _in_short(one: Standing) -> str:
    """Returns an experiment's sentence and thumbnail, as far as they are shown in place."""
    picture = thumbnail(one.document, one.contract)
    image = "" if picture is None else f"\n\n{svg.as_markdown(picture, alt=one.experiment_id)}"
    link = experiment_link(one.experiment_id)
    sentence = plain(one.document["sentence"])
    room = _IN_PLACE - 1 - len(image) - len(link) - 2
    told = sentence if len(sentence) <= room else f"{sentence[: max(room - 1, 0)]}…"
    return f"{link}: {told}{image}"


def standings_table(standings: Sequence[Standing]) -> Rows:
    """Returns a row for each experiment: what it says, on how much, and in what words."""
    return [_row(one) for one in standings]


def _row(one: Standing) -> dict[str, str]:
    document, measure = one.document, measure_of(one.document)
    headline = headline_of(one.contract, candidate=document.get("candidate") is not None)
    ci = document["totals"]["ci"]
    looks = looks_of(document)
    return {
        "experiment": experiment_link(one.experiment_id),
        "answer": unbroken(headline.text),
        # At 1 the test fires.
        "e ÷ threshold": f"{looks[-1].reached:.2g}" if looks else "",
        "units": f"{document['sessions']['accumulated']:,}",
        "interval": "" if ci is None else unbroken(measure.interval(*ci)),
        "in words": plain(document["sentence"]),
    }
