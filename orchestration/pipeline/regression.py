"""The regression of treatment on blocks, by statsmodels, that the evidence's VIF must equal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sqlalchemy import Connection

from orchestration.pipeline.series import seconds, series_of
from stats.counts.timeline import AnalysisCells
from stats.looks.stratification import stratified
from stats.looks.trace import target_cells
from storage.verdicts.evidence import read_experiments
from storage.views.published import PublishedEvidence

if TYPE_CHECKING:
    import pandas as pd

# A regression takes the cube of its columns: with so many it takes a tenth of a second.
_DUMMIES_AT_ONCE = 300
_TOLERANCE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Inflation:
    """A variance inflation factor: as the evidence states it, and as a regression finds it."""

    experiment_id: str
    stated: float
    regressed: float

    @property
    def is_equal(self) -> bool:
        """Whether both are equal, as far as a regression is exact."""
        return bool(np.isclose(self.stated, self.regressed, rtol=_TOLERANCE, atol=0.0))


def read_inflations(
    connection: Connection, published: Sequence[PublishedEvidence]
) -> list[Inflation]:
    """Returns the inflations of experiments, each from its closed cells at the look it states."""
    documents = {each.experiment_id: each.document for each in published}
    inflations: list[Inflation] = []
    for reading in read_experiments(connection, only=list(documents)):
        document = documents[reading.experiment_id]
        if document.as_of is None:
            continue
        cells = target_cells(stratified(series_of(reading)), seconds(document.as_of))
        inflation = Inflation(
            experiment_id=document.experiment_id,
            stated=math.nan if document.gates.vif is None else float(document.gates.vif),
            regressed=regressed_inflation(cells),
        )
        inflations.append(inflation)
    return inflations


def regressed_inflation(cells: AnalysisCells) -> float:
    """Returns the treatment's part that dummies of cells explain beyond dummies of strata.

    The residual sum of squares of a frequency-weighted regression of treatment on the dummies of
    strata, divided by that on the dummies of analysis blocks within strata: with a single stratum
    1/(1−R²) of the latter. Blocks after the last that holds both arms are left out.
    """
    # It takes a second to import, as statsmodels does, and no other step needs either.
    import pandas as pd  # noqa: PLC0415

    both = np.flatnonzero((cells.n1 > 0) & (cells.n0 > 0))
    if not both.size:
        return float("inf")
    cells = cells[cells.row <= cells.row[both[-1]]]
    arms = [
        pd.DataFrame({"stratum": cells.stratum, "units": units, "treated": treated})
        for treated, units in ((1.0, cells.n1), (0.0, cells.n0))
    ]
    # The index of a row is the number of its cell.
    units = pd.concat(arms).rename_axis("cell").reset_index().query("units > 0")
    return _unexplained(units, "stratum") / _unexplained(units, "cell")


def _unexplained(units: "pd.DataFrame", group: str) -> float:
    """Returns the residual sum of squares of treatment on the dummies of groups of cells.

    No unit is in two groups, so the sum is that of regressions on some of the groups at a time.
    """
    # Both take a second to import, and no other step needs them.
    import pandas as pd  # noqa: PLC0415
    from statsmodels.regression.linear_model import WLS  # noqa: PLC0415

    unexplained = 0.0
    for _, some in units.groupby(pd.factorize(units[group])[0] // _DUMMIES_AT_ONCE):
        dummies, weights = pd.get_dummies(some[group], dtype=float), cast("Any", some.units)
        unexplained += float(WLS(some.treated, dummies, weights=weights).fit().ssr)
    return unexplained
