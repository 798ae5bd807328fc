"""Answers of a run: pictures on its page, and places that they free for other changes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from domain.policy import FrozenSource

_MOST_FROZEN = 12


class ShownAnswers:
    """Shows answers as sentences with a picture, and frees places."""

    def frozen(self, connection: "Connection") -> dict[str, dg.MetadataValue]:
        """Shows the policies that were frozen last, each with what it was read from."""
        from orchestration.dagster.table import markdown
        from orchestration.outbound.links import experiment_link
        from storage.views.registrations import frozen_lately

        rows = [
            {
                "experiment": experiment_link(id_),
                "starts": starts_at.isoformat(timespec="minutes"),
                "counts": f"{policy.unit}s",
                "": ", ".join(map(_source, policy.read_from)),
            }
            for id_, starts_at, policy in frozen_lately(connection, limit=_MOST_FROZEN)
        ]
        return {"frozen_from": markdown(rows)}

    def nearest(self, connection: "Connection") -> dict[str, dg.MetadataValue]:
        """Shows the open experiments nearest to an answer, by the change's title."""
        from orchestration.dagster.report import MOST_SHOWN, report
        from storage.views.published import nearest_to_an_answer

        return dict(report(nearest_to_an_answer(connection, limit=MOST_SHOWN)))

    def decided(self, connection: "Connection") -> dict[str, dg.MetadataValue]:
        """Shows the experiments that were decided last, by the change's title."""
        from orchestration.dagster.report import MOST_SHOWN, report
        from storage.views.published import decided_lately

        return dict(report(decided_lately(connection, limit=MOST_SHOWN)))

    def advance_places(self, begin: "Callable[[], AbstractContextManager[Connection]]") -> None:
        """Ends the places that were answered, and gives them to the changes that wait."""
        from places.queue import advance_places

        advance_places(begin)


def _source(source: "FrozenSource") -> str:
    """Returns a member of a policy with the number of events or users that it was read from."""
    member = source.member if source.metric is None else f"{source.member} of {source.metric}"
    unvouched = f" and {source.unvouched:,} unvouched" if source.unvouched else ""
    return f"{member} from {source.vouched:,} vouched{unvouched}"
