"""The e-value of a look, a second time: sums in plain Python over cells, as the pages define them.

docs/statistics.md, 'The test', 'The surplus line', 'Regression adjustment' and 'Ratios'. Nothing of
`stats` is used but the cells that it is given; each cell is an analysis block of its own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SURPLUSES = ((0.0025, 0.1), (0.01, 0.3), (0.05, 0.4), (0.2, 0.2))
OF_EFFECT = ((0.0025, 0.02), (0.01, 0.12), (0.05, 0.46), (0.2, 0.4))
LAG = 3600

Row = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Reckoned:
    """The numbers of a look: log E, and the likelihood's mean in its standard errors."""

    log_e: float
    likelihood: float


@dataclass(frozen=True, kw_only=True)
class Test:
    """The sums of a test: the score S with its variance V, weight W, control's C, precisions."""

    S: float
    V: float
    W: float
    C: float
    rho: Sequence[float]

    def log_e(self, S: float, V: float) -> float:
        """The logarithm of the mean over precisions of √(ρ/(ρ+V))·exp(S²/(2(ρ+V)))."""
        parts = [0.5 * math.log(r / (r + V)) + S * S / (2 * (r + V)) for r in self.rho]
        return log_sum(parts) - math.log(len(parts))


def log_sum(parts: Sequence[float]) -> float:
    """The logarithm of a sum of exponentials."""
    most = max(parts)
    return most + math.log(sum(math.exp(part - most) for part in parts))


def log_normal(value: float, variance: float) -> float:
    """The logarithm of N(value; 0, variance)."""
    return -0.5 * (math.log(2 * math.pi * variance) + value * value / variance)


def reckoned_at(
    cells: Sequence[Row],
    *,
    kind: str,
    rho: Sequence[float],
    epochs: Mapping[int, Sequence[tuple[int, int | None, float]]],
    size: int,
    closes: int,
) -> Reckoned | None:
    """Returns the numbers of a look from the cells that closed by then; None without a test.

    Args:
        cells: With `block`, `stratum`, and of either arm n, x, y, yy, d, dd, yd and h.
        epochs: Of a stratum its declarations: from when, until when, treatment's share.
        closes: How long after its start a cell closes.
    """
    cells = with_slopes(cells, closes)
    of, lost, differ = test_of(cells, kind, rho), None, False
    if kind == "adjusted":
        differ, lost = _histories(cells, of, rho)
        of = test_of(cells, "mean", rho) if differ else of
    if not of.V > 0:
        return None
    log_e, score, spread = of.log_e(of.S, of.V), of.S, of.V
    if lost is not None:
        log_e = min(log_e, lost.log_e())
        score, spread = lost.likelihood(score, spread, usual=0.0)
    declared = [cell for cell in cells if (share := _share(cell, epochs, size)) and share > 0]
    declared = with_slopes(declared, closes)
    if sum(map(_w, declared)) >= sum(map(_w, cells)) / 2 > 0:
        own = test_of(declared, "mean" if differ else kind, rho)
        line = _surplus(declared, own, kind, epochs, size)
        log_e = min(log_e, line.log_e() if own.S * of.S > 0 else 0.0)
        score, spread = line.likelihood(score, spread, usual=0.15)
    return Reckoned(log_e=log_e, likelihood=score / math.sqrt(spread))


def with_slopes(cells: Sequence[Row], closes: int) -> list[Row]:
    """The cells, each with the slope θ of those that had closed when it began."""
    sloped, users, xx, xy, known = list[Row](), 0.0, 0.0, 0.0, 0
    for cell in cells:
        while cells[known]["block"] + closes <= cell["block"]:
            each = cells[known]
            n, y = each["n1"] + each["n0"], each["y1"] + each["y0"]
            d = each["d1"] + each["d0"]
            users, known = users + n, known + 1
            xx += each["dd1"] + each["dd0"] - d * d / n
            xy += each["yd1"] + each["yd0"] - y * d / n
        sloped.append({**cell, "theta": xy / xx if users >= 500 and xx > 0 else 0.0})
    return sloped


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A test, with N of treatment's units in doubt (information I), which moved S by A."""

    of: Test
    N: float
    I: float  # noqa: E741 - the page's name
    A: float
    B: float

    def log_e(self) -> float:
        of, above, below = self.of, list[float](), list[float]()
        if not (of.V > 0 and self.I > 0):
            return 0.0
        if (of.S - self._kept(0.05) * self.A) * of.S <= 0:
            return 0.0
        for tau, weight in SURPLUSES:
            kept = self._kept(tau)
            S, V = of.S - kept * self.A, of.V + kept * self.B
            prior = self.I * (1 + tau * tau * self.I)
            below.append(math.log(weight) + log_normal(self.N, prior) + log_normal(S, V))
            above.append(below[-1] + of.log_e(S * of.V / V, of.V * of.V / V))
        return log_sum(above) - log_sum(below)

    def likelihood(self, S: float, V: float, *, usual: float) -> tuple[float, float]:
        """Mean and variance of the mixture, in which the units do as usual so often."""
        if not self.I > 0:
            return S, V
        logs = [
            math.log(weight) + log_normal(self.N, self.I * (1 + tau * tau * self.I))
            for tau, weight in OF_EFFECT
        ]
        parts = [(usual, S, V)]
        for (tau, _), log in zip(SURPLUSES, logs, strict=True):
            share = (1 - usual) * math.exp(log - log_sum(logs))
            parts.append((share, S - self._kept(tau) * self.A, V + self._kept(tau) * self.B))
        mean = sum(share * of for share, of, _ in parts)
        return mean, sum(share * (v + (of - mean) ** 2) for share, of, v in parts)

    def _kept(self, tau: float) -> float:
        """1 − κ."""
        return 1 - 1 / (1 + tau * tau * self.I)


def test_of(cells: Sequence[Row], kind: str, rho: Sequence[float]) -> Test:
    """The test of a conversion, a mean, an adjusted mean or a ratio over cells."""
    both = [cell for cell in cells if cell["n1"] and cell["n0"]]
    return _KINDS[kind](both, rho)


def _w(cell: Row) -> float:
    n = cell["n1"] + cell["n0"]
    return cell["n1"] * cell["n0"] / n if n else 0.0


def _of_rates(cells: Sequence[Row], rho: Sequence[float], x: str = "x") -> Test:
    S = V = C = 0.0
    for cell in cells:
        n, m = cell["n1"] + cell["n0"], cell[f"{x}1"] + cell[f"{x}0"]
        S += cell[f"{x}1"] - m * cell["n1"] / n
        C += cell[f"{x}0"] * cell["n1"] / n
        V += _w(cell) * (m / n) * ((n - m) / (n - 1))
    return Test(S=S, V=V, W=sum(map(_w, cells)), C=C, rho=rho)


def _of_means(cells: Sequence[Row], rho: Sequence[float], *, adjusted: bool = False) -> Test:
    S = V0 = C = 0.0
    arms = {arm: [0.0, 0.0, 0.0, 0.0] for arm in "10"}
    for cell in cells:
        n, w = cell["n1"] + cell["n0"], _w(cell)
        theta = cell["theta"] if adjusted else 0.0
        mean, total, squares, levels = (cell["d1"] + cell["d0"]) / n, 0.0, 0.0, {}
        for arm, sums in arms.items():
            own = {name: cell[f"{name}{arm}"] for name in ("n", "y", "yy", "d", "dd", "yd")}
            y = own["y"] - theta * (own["d"] - own["n"] * mean)
            centred = own["dd"] - 2 * mean * own["d"] + own["n"] * mean**2
            yy = own["yy"] - 2 * theta * (own["yd"] - mean * own["y"]) + theta**2 * centred
            total, squares, levels[arm] = total + y, squares + yy, y / own["n"]
            for place, part in enumerate((own["n"], y, yy, w * w / own["n"])):
                sums[place] += part
        S += w * (levels["1"] - levels["0"])
        V0 += w / (n - 1) * (squares - total * total / n) if n > 1 else 0.0
        C += cell["y0"] * cell["n1"] / n
    W = sum(map(_w, cells))
    if not V0 > 0 or min(arms["1"][0], arms["0"][0]) < 100:
        return Test(S=0, V=0, W=0, C=0, rho=rho)
    pooled = sum((yy - y * y / n) / (n - 1) * share for n, y, yy, share in arms.values())
    V = max(V0, pooled)
    level = max(abs(C + S / 2), 0.05 * math.sqrt(V * W))
    return Test(S=S, V=V, W=W, C=C, rho=[r * (V0 / level) ** 2 for r in rho])


def _of_ratios(cells: Sequence[Row], rho: Sequence[float]) -> Test:
    S = D = C = own = 0.0
    sums = {arm: dict.fromkeys(("n", "y", "d", "yy", "yd", "dd", "share"), 0.0) for arm in "10"}
    for cell in cells:
        n = cell["n1"] + cell["n0"]
        S += (cell["y1"] * cell["d0"] - cell["y0"] * cell["d1"]) / n
        D += cell["d1"] * cell["d0"] / n
        C += cell["y0"] * cell["d1"] / n
        for arm, other in ("10", "01"):
            for name in ("n", "y", "d", "yy", "yd", "dd"):
                sums[arm][name] += cell[f"{name}{arm}"]
            sums[arm]["share"] += (cell[f"d{other}"] / n) ** 2 * cell[f"n{arm}"]
    W = sum(map(_w, cells))
    level = C + S / 2
    ready = min(sums["1"]["n"], sums["0"]["n"]) >= 100 and D > 0 and level > 0
    if not ready:
        return Test(S=0, V=0, W=0, C=0, rho=rho)
    rates = {arm: part["y"] / part["d"] if part["d"] else 0.0 for arm, part in sums.items()}
    for cell in cells:
        for arm, other in ("10", "01"):
            share = (cell[f"d{other}"] / (cell["n1"] + cell["n0"])) ** 2
            own += share * _squares(rates[arm], {k: cell[f"{k}{arm}"] for k in ("yy", "yd", "dd")})
    pooled = sum(_squares(rates[a], p) / (p["n"] - 1) * p["share"] for a, p in sums.items())
    whole = {name: sums["1"][name] + sums["0"][name] for name in sums["1"]}
    common = _squares(whole["y"] / whole["d"], whole) / (whole["n"] - 2) * whole["share"]
    V, scale = max(pooled, own, common), W / D
    factor = (V * scale / level) ** 2
    return Test(S=S * scale, V=V * scale**2, W=W, C=C * scale, rho=[r * factor for r in rho])


def _squares(rate: float, of: Row) -> float:
    return of["yy"] - 2 * rate * of["yd"] + rate * rate * of["dd"]


_KINDS: Mapping[str, Callable[[Sequence[Row], Sequence[float]], Test]] = {
    "conversion": _of_rates,
    "mean": _of_means,
    "adjusted": lambda cells, rho: _of_means(cells, rho, adjusted=True),
    "ratio": _of_ratios,
}


def _histories(cells: Sequence[Row], of: Test, rho: Sequence[float]) -> tuple[bool, Doubt | None]:
    """Whether the arms differ in who has a history; and the doubt about who has lost it."""
    both = [cell for cell in cells if cell["n1"] and cell["n0"]]
    known, users = _of_rates(both, rho, "h"), sum(cell["n1"] + cell["n0"] for cell in both)
    if not users:
        return False, None
    differ = known.log_e(known.S, known.V) >= math.log(100)
    h = sum(cell["h1"] + cell["h0"] for cell in both) / users
    if differ or not (h > 0 and of.W > 0):
        return differ, None
    information = h * known.W / max(1 - h, 1 / users)
    lost = -known.S / (h * known.W)
    moved = sum(
        _w(cell) * cell["theta"] * (cell["d1"] + cell["d0"]) / (cell["n1"] + cell["n0"])
        for cell in both
    )
    return differ, Doubt(
        of=of, N=lost * information, I=information, A=moved * lost, B=moved**2 / information
    )


def _share(
    cell: Row, epochs: Mapping[int, Sequence[tuple[int, int | None, float]]], size: int
) -> float:
    """Treatment's declared share of a cell; 0 where none counts."""
    declared = 0.0
    for number, (start, end, share) in enumerate(epochs.get(int(cell["stratum"]), ())):
        begun = cell["block"] >= start + LAG if number else cell["block"] + size > start
        if 0 < share < 1 and begun and (end is None or cell["block"] + size <= end):
            declared = share
    return declared


def _surplus(
    cells: Sequence[Row],
    of: Test,
    kind: str,
    epochs: Mapping[int, Sequence[tuple[int, int | None, float]]],
    size: int,
) -> Doubt:
    """The doubt about units of a single arm, which do nothing there."""
    N = I = A = B = 0.0  # noqa: E741 - the page's names
    numerator = {"conversion": "x"}.get(kind, "y")
    D = sum(cell["d1"] * cell["d0"] / (cell["n1"] + cell["n0"]) for cell in cells)
    W = sum(map(_w, cells))
    for stratum in {cell["stratum"] for cell in cells}:
        own = [cell for cell in cells if cell["stratum"] == stratum]
        weight, level, beyond, information = 0.0, 0.0, 0.0, 0.0
        for cell in own:
            n, share = cell["n1"] + cell["n0"], _share(cell, epochs, size)
            beyond += cell["n1"] - share * n
            information += n * share * (1 - share)
            weight += _w(cell)
            other = cell["d1"] if kind == "ratio" else cell["n1"]
            level += cell[f"{numerator}0"] * other / n
        level = level / weight if weight else 0.0
        level *= W / D if kind == "ratio" and D else 1.0
        N, I = N + beyond, I + information  # noqa: E741
        A, B = A - level * beyond, B + level**2 * information
    return Doubt(of=of, N=N, I=I, A=A, B=B)
