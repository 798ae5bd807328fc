"""Experiments: what a run costs in which all of many open ones have a look due.

Run by `python -m benchmarks.experiments`. In an embedded PostgreSQL experiments are
registered, ten a project, and 168 blocks of a target and a guardrail are laid for each;
then the evidence is computed and published, in a process of its own whose memory is measured.
"""

import hashlib
import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from benchmarks.report import options, report
from benchmarks.store import MeasuredStore, deploy, measured_store, register_frozen
from domain.registration import Registration
from orchestration.pipeline.steps import publish, stage_due
from storage.postgres.engine import open_engine
from storage.schema.clock import claim_derived_tables
from storage.schema.encoding import epoch_microseconds
from storage.tenants.projects import create_project

CONTROL, TREATMENT = "c0ffee0", "decade1"
STARTS = datetime(2026, 10, 5, tzinfo=UTC)
# The limits of a run over 10,000 experiments: seconds, with room for others, and MiB.
LIMIT_SECONDS, LIMIT_MIB = 20, 2048
BLOCKS = 168
A_PROJECT = 10

# Of each experiment other counts, and the same ones in every run of the benchmark: a hash draws.
_CELLS = text(f"""
INSERT INTO cells (experiment_id, metric, block, stratum, n1, x1, n0, x0)
SELECT x.experiment_id, m ->> 'name', {epoch_microseconds("t.block")}, 'whole', :units + d.a % 2,
    (:units * d.b % 16 = 0)::int + :units / 16, :units + d.c % 2,
    (:units * d.d % 16 = 0)::int + :units / 16
FROM experiments AS x
CROSS JOIN jsonb_array_elements(
    jsonb_build_array(x.policy -> 'target') || (x.policy -> 'guardrails')
) AS m
CROSS JOIN generate_series(
    CAST(:starts AS timestamptz), CAST(:ends AS timestamptz) - CAST(:step AS interval),
    CAST(:step AS interval)
) AS t (block)
CROSS JOIN LATERAL (
    SELECT hashtextextended(
        x.project_id || x.target_metric || (m ->> 'name') || extract(epoch FROM t.block), 7
    ) & 2147483647 AS drawn
) AS h
CROSS JOIN LATERAL (
    SELECT drawn % 1009 AS a, drawn / 1009 % 1009 AS b, drawn / 7 % 1009 AS c, drawn / 31 AS d
) AS d
""")
_STRATA = text("""
INSERT INTO strata (experiment_id, stratum, commit_sha)
SELECT experiment_id, 'whole', control_commit FROM experiments
""")
_UNITS = text("""
INSERT INTO block_units (experiment_id, block, treatment, control, own)
SELECT c.experiment_id, c.block, c.n1, c.n0, c.n1
FROM cells AS c JOIN experiments AS x
  ON x.experiment_id = c.experiment_id AND x.target_metric = c.metric
""")
_CURSORS = text("""
INSERT INTO cursors (stage, experiment_id, at)
SELECT s.stage, x.experiment_id, :ends
FROM experiments AS x
CROSS JOIN LATERAL (
    SELECT 'exposures' UNION ALL SELECT 'conversions'
    UNION ALL SELECT 'cells/' || (m ->> 'name')
    FROM jsonb_array_elements(
        jsonb_build_array(x.policy -> 'target') || (x.policy -> 'guardrails')
    ) AS m
) AS s (stage)
""")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The traffic of an experiment: as many blocks, with so many units of each arm.

    Attributes:
        name: What it is called.
        step: From block to block.
        units: Of an arm in a block, or a unit more.
    """

    name: str
    step: timedelta
    units: int

    @property
    def ends(self) -> datetime:
        """Where the last block ends."""
        return STARTS + BLOCKS * self.step


# Fourteen hours with a look every hour or so, and a week with a look every hour and metric.
SHAPES = {
    "thin": Shape(name="thin", step=timedelta(minutes=5), units=2),
    "busy": Shape(name="busy", step=timedelta(hours=1), units=60),
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a run cost.

    Attributes:
        experiments: Open ones, each with a look due.
        shape: Of their traffic.
        evidence: Seconds of the stage that computes and stages.
        publish: Seconds of the stage that publishes.
        cpu: Seconds of this process, PostgreSQL apart.
        peak_mib: Its largest resident memory.
        digest: Of all contracts and evidence documents: a change of the code that is to change
            no verdict leaves it as it is.
    """

    experiments: int
    shape: str
    evidence: float
    publish: float
    cpu: float
    peak_mib: float
    digest: str


def lay(store: MeasuredStore, experiments: int, shape: Shape) -> None:
    """Registers experiments, and lays the cells that their traffic would have left."""
    metrics = ["activation", *(f"metric{number}" for number in range(1, A_PROJECT))]
    for number in range(-(-experiments // A_PROJECT)):
        with store.engine.begin() as connection:
            project = create_project(connection, f"shop{number}").project_id
            deploy(connection, project, CONTROL, STARTS - timedelta(days=1))
            deploy(connection, project, TREATMENT, STARTS, base=CONTROL, share=0.5)
            for metric in metrics[: experiments - A_PROJECT * number]:
                asked = Registration(treatment_commit=TREATMENT, target_metric=metric)
                register_frozen(connection, project, asked)
    laid = {"starts": STARTS, "ends": shape.ends, "step": shape.step, "units": shape.units}
    with store.engine.begin() as connection:
        # The digest of the evidence tells whether a deploy was recorded by the binding's second.
        connection.execute(text("UPDATE deploys SET recorded_at = deployed_at"))
        connection.execute(
            text("UPDATE experiments SET bound_at = starts_at + interval '1 minute'")
        )
        connection.execute(_CELLS, laid)
        connection.execute(_STRATA)
        connection.execute(_UNITS)
        connection.execute(_CURSORS, {"ends": shape.ends})
    store.vacuum()


# Names are drawn at the registration, in the order of projects and metrics; later experiments name
# the earlier attempts, and the digest of their inputs holds these names.
_ANSWERS = text("""
SELECT regexp_replace(
    v.contract::text || v.evidence::text, 'exp_[0-9a-f]+|[0-9a-f]{64}', '', 'g'
) AS answer
FROM verdicts AS v JOIN experiments AS x USING (experiment_id)
ORDER BY x.project_id, x.target_metric
""")


def measured(url: str, experiments: int, shape: Shape) -> Measured:
    """Takes the last two stages once, each in a transaction."""
    engine = open_engine(url)
    seconds: list[float] = []
    begun_cpu = time.process_time()
    for stage in (lambda c: stage_due(c, as_of=shape.ends), publish):
        begun = time.perf_counter()
        with engine.begin() as connection:
            claim_derived_tables(connection)
            stage(connection)
        seconds.append(time.perf_counter() - begun)
    cpu = time.process_time() - begun_cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    digest = hashlib.sha256()
    with engine.connect() as connection:
        for answer in connection.execute(_ANSWERS).scalars():
            digest.update(answer.encode())
    return Measured(
        experiments=experiments,
        shape=shape.name,
        evidence=seconds[0],
        publish=seconds[1],
        cpu=cpu,
        peak_mib=peak,
        digest=digest.hexdigest()[:16],
    )


def run(experiments: int, shape: Shape) -> Measured:
    """Lays a world and measures a run on it, in a process that has done nothing else."""
    with measured_store() as store:
        lay(store, experiments, shape)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(measured, (store.url, experiments, shape))


_COLUMNS: dict[str, Callable[[Measured], str]] = {
    "experiments": lambda row: f"{row.experiments:,}",
    "traffic": lambda row: row.shape,
    "evidence": lambda row: f"{row.evidence:.1f} s",
    "publish": lambda row: f"{row.publish:.1f} s",
    f"run (≤ {LIMIT_SECONDS} s)": lambda row: f"{row.evidence + row.publish:.1f} s",
    "CPU": lambda row: f"{row.cpu:.1f} s",
    f"peak MiB (≤ {LIMIT_MIB:,})": lambda row: f"{row.peak_mib:,.0f}",
    "digest": lambda row: row.digest,
}


def main() -> None:
    """Measures the chosen rows, and prints them."""
    parser = options(__doc__)
    parser.add_argument("--experiments", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--traffic", nargs="*", choices=SHAPES, default=["thin"])
    chosen = parser.parse_args()
    rows = [run(number, SHAPES[name]) for name in chosen.traffic for number in chosen.experiments]
    report(rows, _COLUMNS, lines=chosen.lines)


if __name__ == "__main__":
    main()
