"""The peers: our test, gbstats, a fixed-sample z test and the oracle SPRT on the same streams.

Run by `make peers`; `make calibrate` puts the same table into its report.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.stats import norm

from benchmarks.calibration.proportion import Proportion
from benchmarks.calibration.traffic import BLOCK, Floats, Traffic, batches, ramp
from stats.decision.evidence import evaluate
from stats.looks.series import Series
from stats.looks.stratification import stratified
from stats.looks.trace import traced

ALPHA = 0.05
LIFT = 0.2
BASELINE = 0.05
# With treatment's rate known to be a fifth higher, so is the log odds ratio of the arms.
THETA = np.log(BASELINE * (1 + LIFT) / (1 - BASELINE * (1 + LIFT))) - np.log(
    BASELINE / (1 - BASELINE)
)
TUNING = 5000.0  # gbstats's default: the sample size that its sequence is tightest at
VERDICTS = 10_000
BLOCKS = 168
SOURCE = Path(__file__).with_name("gbstats_verdicts.py")

OURS = "ours"
# Its default is to test the relative lift, with the delta method; ours tests the difference.
RELATIVE, ABSOLUTE = "relative", "absolute"
GBSTATS = "gbstats 0.8.0, sequential, absolute scale (ours)"
GBSTATS_RELATIVE = "gbstats 0.8.0, sequential, relative scale (its default)"
PEEKED = "z test, peeked at every 5 minutes"
PLANNED = "z test, a single look as planned"
ORACLE = "oracle SPRT, size of the effect known"
SIGNED = "oracle SPRT, size and sign known"
METHODS = (OURS, GBSTATS, GBSTATS_RELATIVE, PEEKED, PLANNED, ORACLE, SIGNED)
COLUMNS = (
    "type-I error, 50/50, drift ± 50 %",
    "ramp, drift ± 50 %",
    "ramp, drift ± 10 %",
    "median sessions to +20 %",
    "to the oracle's",
    "CPU seconds for 10,000 verdicts",
)

Firsts = dict[str, Floats]


@dataclass(frozen=True, kw_only=True)
class Gbstats:
    """The Python that has gbstats; none where it could not be installed."""

    python: Path | None

    def verdicts(self, rows: Floats, scale: str) -> tuple[Floats, float]:
        """Its p-values of cumulative counts (n1, x1, n0, x0), and the CPU seconds they took."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.npy"
            np.save(path, rows.astype(np.int64))
            command = [str(self.python), str(SOURCE), str(path), scale]
            printed = subprocess.run(command, capture_output=True, check=True).stdout
        found = json.loads(printed)
        return np.array(found["p"]), found["seconds"]


@dataclass(frozen=True, kw_only=True)
class Study:
    """When each method first answered on each of the same streams.

    Attributes:
        days: By method, days of exposure at its first answer; infinite where there was none.
        sessions: By method, sessions of both arms until then.
        count: Streams.
        looks: Cumulative counts (n1, x1, n0, x0) at some of the looks, to check gbstats at.
    """

    days: Firsts
    sessions: Firsts
    count: int
    looks: Floats

    def fired(self, method: str) -> Proportion:
        hits = int(np.isfinite(self.days[method]).sum())
        return Proportion(name=method, hits=hits, count=self.count, at_most=ALPHA)

    def median_sessions(self, method: str) -> tuple[float, float, float]:
        """The median, and its 95 % interval from the order statistics."""
        found = np.sort(self.sessions[method])
        half = 0.98 * self.count**0.5
        low, high = (int(self.count / 2 + sign * half) for sign in (-1, 1))
        # Of an even number the two in the middle may both be infinite.
        return found[self.count // 2], found[max(low, 0)], found[min(high, self.count - 1)]


def counts_of(series: Series) -> Floats:
    """Cumulative n1, x1, n0 and x0 after each block, as an array (blocks, 4)."""
    cells = series.target
    columns = (cells.n1, cells.x1, cells.n0, cells.x0)
    return np.cumsum(np.stack(columns, axis=1), axis=0).astype(np.float64)


def gbstats_p(counts: Floats, scale: str) -> Floats:
    """What gbstats gives, for many looks at once: 1 where it can't compute.

    Source: its `SequentialTwoSidedTTest`; equations 155 and 161 of Waudby-Smith et al. (2023).

    Args:
        counts: Cumulative n1, x1, n0 and x0, an array (looks, 4).
        scale: `absolute`, the difference of the rates, or `relative`, divided by control's.
    """
    n1, x1, n0, x0 = counts.T
    with np.errstate(all="ignore"):
        a, b = x0 / n0, x1 / n1
        difference = b - a if scale == ABSOLUTE else b / a - 1
        variance = b * (1 - b) / n1 + a * (1 - a) / n0
        if scale == RELATIVE:
            variance = b * (1 - b) / (a**2 * n1) + a * (1 - a) * b**2 / (a**4 * n0)
        n = n0 + n1
        rho2 = (-2 * np.log(ALPHA) + np.log(-2 * np.log(ALPHA) + 1)) / TUNING
        scaled = n * rho2 + 1
        log_e = rho2 * difference**2 * n / variance / (2 * scaled) - np.log(scaled) / 2
        p = np.minimum(1.0, np.exp(-log_e))
    unknown = (n0 < 1) | (n1 < 1) | (x0 < 1) | (x1 < 1) | (x0 == n0) | (x1 == n1)
    return np.where(unknown, 1.0, p)


def z_score(counts: Floats) -> Floats:
    """The pooled two-sample z score; 0 where it can't be computed."""
    n1, x1, n0, x0 = counts.T
    with np.errstate(all="ignore"):
        rate = (x0 + x1) / (n0 + n1)
        score = (x1 / n1 - x0 / n0) / np.sqrt(rate * (1 - rate) * (1 / n0 + 1 / n1))
    return np.where(np.isfinite(score), score, 0.0)


def planned_sessions() -> float:
    """Sessions at which the z test finds the lift with 80 % power, known beforehand."""
    p, q = BASELINE, BASELINE * (1 + LIFT)
    z = norm.ppf(1 - ALPHA / 2) + norm.ppf(0.8)
    return 2 * z**2 * (p * (1 - p) + q * (1 - q)) / (q - p) ** 2


def study(traffic: Traffic, count: int, seed: int) -> Study:
    """All methods on the same streams, each looking whenever a block has ended."""
    days: dict[str, list[float]] = {name: [] for name in METHODS}
    sessions: dict[str, list[float]] = {name: [] for name in METHODS}
    sampled: list[Floats] = []
    chosen = np.random.default_rng(seed + 1)
    limit = norm.ppf(1 - ALPHA / 2)

    def note(name: str, day: float, units: float) -> None:
        days[name].append(day)
        sessions[name].append(units)

    for batch in batches(traffic, count, seed):
        trace = traced([stratified(one) for one in batch])
        for i, (series, seen) in enumerate(zip(batch, evaluate(batch), strict=True)):
            counts = counts_of(series)
            units = counts[:, 0] + counts[:, 2]
            answers = seen.decision.verdict != "abstain"
            note(
                OURS,
                seen.closed_until / 86_400 if answers else np.inf,
                seen.units_in_cells if answers else np.inf,
            )
            z = np.abs(z_score(counts))
            pooled = (
                (GBSTATS, gbstats_p(counts, ABSOLUTE) <= ALPHA),
                (GBSTATS_RELATIVE, gbstats_p(counts, RELATIVE) <= ALPHA),
                (PEEKED, z >= limit),
            )
            for name, fires in pooled:
                note(name, *_first(fires, (np.arange(z.size) + 1) * BLOCK, units))
            note(PLANNED, *_first(z[-1:] >= limit, np.array([z.size * BLOCK]), units[-1:]))
            looks = trace.trace[trace.rows(i)]
            up, down = (
                sign * THETA * looks.totals.S - THETA**2 * looks.totals.V0 / 2 for sign in (1, -1)
            )
            either = np.logaddexp(up, down) - np.log(2)
            for name, log_e in ((ORACLE, either), (SIGNED, up)):
                fires = log_e >= -np.log(ALPHA)
                note(name, *_first(fires, looks.end, looks.n0 + looks.n1))
            sampled.append(counts[chosen.integers(0, counts.shape[0], 4)])
    return Study(
        days={name: np.array(found) for name, found in days.items()},
        sessions={name: np.array(found) for name, found in sessions.items()},
        count=count,
        looks=np.concatenate(sampled),
    )


def _first(fires: Floats, seconds: Floats, units: Floats) -> tuple[float, float]:
    found = np.flatnonzero(fires)
    if not found.size:
        return np.inf, np.inf
    return float(seconds[found[0]]) / 86_400, float(units[found[0]])


@dataclass(frozen=True, kw_only=True)
class Speed:
    """CPU seconds for 10,000 experiments of 168 blocks.

    Attributes:
        ours: Verdict and evidence of each, with the intervals at all 168 looks.
        gbstats_last: A verdict of gbstats an experiment, on counts summed beforehand.
        gbstats_all: A verdict of gbstats at each look, scaled up from a hundredth of them.
    """

    ours: float
    gbstats_last: float | None
    gbstats_all: float | None


def speed(gbstats: Gbstats, scale: float, seed: int) -> Speed:
    count = max(100, round(VERDICTS * min(1.0, scale)))
    rng = np.random.default_rng(seed)
    day = replace(Traffic(days=1, drift=0.0), per_day=24_000)
    series = [_shortened(day.drawn(rng)) for _ in range(count)]
    begun = time.process_time()
    evaluate(series)
    ours = (time.process_time() - begun) * VERDICTS / count
    if gbstats.python is None:
        return Speed(ours=ours, gbstats_last=None, gbstats_all=None)
    counts = np.stack([counts_of(one) for one in series])
    _, last = gbstats.verdicts(counts[:, -1], ABSOLUTE)
    some = counts[: count // 100]
    _, every = gbstats.verdicts(some.reshape(-1, 4), ABSOLUTE)
    return Speed(
        ours=ours,
        gbstats_last=last * VERDICTS / count,
        gbstats_all=every * VERDICTS / some.shape[0],
    )


def _shortened(series: Series) -> Series:
    """The first 168 blocks."""
    names = ("block", "stratum", "n1", "x1", "n0", "x0")
    return replace(
        series,
        **{name: getattr(series, name)[:BLOCKS] for name in names},
        as_of=BLOCKS * BLOCK + 1920,
    )


@dataclass(frozen=True, kw_only=True)
class Peers:
    """Everything that is compared, from a run.

    Attributes:
        constant: No effect, 50/50, 28 days.
        ramp: No effect, 1, 5, 25 and 50 % for a day each, 28 days.
        mild: The same with a drift of 10 % instead of 50 %.
        lifted: +20 % at 5 %, 50/50.
        speed: Of 10,000 verdicts.
        largest_difference: Between gbstats's own p-values and our formula of them; None without it.
        checked: At how many looks.
    """

    constant: Study
    ramp: Study
    mild: Study
    lifted: Study
    speed: Speed
    largest_difference: float | None
    checked: int

    @property
    def methods(self) -> tuple[str, ...]:
        return METHODS if self.largest_difference is not None else (OURS, *METHODS[3:])

    def sessions(self, method: str) -> tuple[float, float, float]:
        if method == PLANNED:
            return (planned_sessions(),) * 3
        return self.lifted.median_sessions(method)

    def table(self) -> list[str]:
        """The lines of a Markdown table."""
        oracle = self.sessions(ORACLE)[0]
        lines = [f"| | {' | '.join(COLUMNS)} |", f"| --- {'| --- ' * len(COLUMNS)}|"]
        for name in self.methods:
            median, low, high = self.sessions(name)
            shown = f"{median:,.0f}" + ("" if name == PLANNED else f" ({low:,.0f}–{high:,.0f})")
            nulls = (self.constant, self.ramp, self.mild)
            cells = [name, *(_judged(one.fired(name)) for one in nulls)]
            cells += [shown, f"{median / oracle:.2f}", self._seconds(name)]
            lines.append(f"| {' | '.join(cells)} |")
        return lines

    def _seconds(self, method: str) -> str:
        if method == OURS:
            return f"{self.speed.ours:.1f} (168 looks each)"
        if method == GBSTATS:
            last, every = self.speed.gbstats_last, self.speed.gbstats_all
            return f"{last:.1f} (1 look each), {every:,.0f} (168 looks each)"
        return "–"

    def as_json(self) -> str:
        """A line, to compare over time."""
        return json.dumps(
            {
                "count": self.constant.count,
                "type_1_constant": {m: self.constant.fired(m).share for m in self.methods},
                "type_1_ramp": {m: self.ramp.fired(m).share for m in self.methods},
                "type_1_ramp_mild": {m: self.mild.fired(m).share for m in self.methods},
                "median_sessions": {m: round(self.sessions(m)[0]) for m in self.methods},
                "cpu_seconds_ours": round(self.speed.ours, 2),
                "cpu_seconds_gbstats_last": self.speed.gbstats_last,
                "cpu_seconds_gbstats_all": self.speed.gbstats_all,
            }
        )


def _judged(found: Proportion) -> str:
    mark = " **OUTSIDE**" if "OUTSIDE" in found.judgement else ""
    return f"{found.share:.3f} ± {found.error:.3f}{mark}"


def compared(gbstats: Gbstats, scale: float, say: Callable[[str], object]) -> Peers:
    """The comparison at a scale: 1 is 1,000 streams of 28 days without an effect, three times."""
    count = max(50, round(1000 * scale))
    say("peers: 50/50")
    constant = study(Traffic(days=28), count, 20_261_301)
    say("peers: ramp")
    ramped = study(Traffic(days=28, share=ramp), count, 20_261_302)
    say("peers: ramp, drift of 10 %")
    mild = study(Traffic(days=28, share=ramp, drift=0.1), count, 20_261_305)
    say("peers: +20 %")
    lifted = study(
        Traffic(days=7, drift=0.0, lift=LIFT * BASELINE, baseline=BASELINE), count, 20_261_303
    )
    looks = np.concatenate([one.looks for one in (constant, ramped, mild, lifted)])
    say("peers: speed")
    return Peers(
        constant=constant,
        ramp=ramped,
        mild=mild,
        lifted=lifted,
        speed=speed(gbstats, scale, 20_261_304),
        largest_difference=_largest_difference(gbstats, looks),
        checked=looks.shape[0],
    )


def _largest_difference(gbstats: Gbstats, looks: Floats) -> float | None:
    """How far our formula of gbstats is from gbstats, on either scale."""
    if gbstats.python is None:
        return None
    # Without a unit it raises; there is nothing to compare there.
    rows = looks[(looks[:, 0] > 1) & (looks[:, 2] > 1)]
    differences = [
        np.abs(gbstats.verdicts(rows, scale)[0] - gbstats_p(rows, scale))
        for scale in (ABSOLUTE, RELATIVE)
    ]
    return float(np.max(differences))


def found_gbstats(python: Path | None) -> Gbstats:
    """The given Python, where it is there and has gbstats."""
    if python is None or not python.exists():
        return Gbstats(python=None)
    asked = subprocess.run([str(python), "-c", "import gbstats"], capture_output=True, check=False)
    return Gbstats(python=None if asked.returncode else python)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--gbstats", type=Path, help="the Python that has gbstats")
    chosen = parser.parse_args(arguments)
    peers = compared(
        found_gbstats(chosen.gbstats), chosen.scale, lambda what: sys.stderr.write(f"{what}\n")
    )
    difference = f"Largest difference to gbstats's own p-values: {peers.largest_difference}"
    sys.stdout.write("\n".join([*peers.table(), difference, peers.as_json(), ""]))


if __name__ == "__main__":
    main()
