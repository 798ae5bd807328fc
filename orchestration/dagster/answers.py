"""Answers of a run: pictures on its page, and places that they free for other changes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from sqlalchemy import Connection


class ShownAnswers:
    """Shows answers as sentences with a picture, and frees places."""

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
