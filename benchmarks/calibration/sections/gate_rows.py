"""The rows of the calibration's page that the table of gates quotes."""

_LATE = "lateness: 5 % of outcomes late in treatment, 1 % in control"
_WINDOW = "after the window: 92 % within it in treatment, 97 % in control"
_LEFT = "left out: 10 % of payments in treatment, 3 % in control"
_PAGE = "treatment's page loses 10 % of purchases, servers know of half"
_BEFORE = "before exposure: 5 % of treatment's purchases, none of control's"
_LASTS = "treatment's sessions last longer, 5 % come back"
# Each gate has its rows for: nothing wrong; its case, without and with it; +10 %, nothing wrong.
GATE_ROWS = {
    "sample_ratio": (
        "sample ratio: as declared: held back",
        None,
        "sample ratio: 45 % served where 50 % is declared, +10 %: an answer",
        "sample ratio: as declared, +10 %: kept",
    ),
    "unit": (
        "unit: seven sessions a visitor, each drawn anew: held back",
        "unit: seven sessions a visitor, whom the router keeps, without the gate: stopped",
        "unit: seven sessions a visitor, whom the router keeps, with it: stopped",
        "unit: seven sessions a visitor, each drawn anew, +10 %: kept",
    ),
    "lateness": (
        "lateness: 1 % in both: held back",
        f"{_LATE}, without the gate: an answer",
        f"{_LATE}: an answer",
        "lateness: 1 % in both, +10 %: kept",
    ),
    "interaction": (
        "alarm, no effect, two strata",
        None,
        "interaction: +50 % and −20 % in two strata: an answer",
        "interaction: +10 % in both strata, of 2 and 10 %: kept",
    ),
    "after_window": (
        "after the window: 97 % within it in both: held back",
        f"{_WINDOW}, without the gate: rolled back",
        f"{_WINDOW}, with it: rolled back",
        "the same, +10 % for 14 days: kept",
    ),
    "other_currency": (
        "left out: 3 % of payments in both: held back",
        f"{_LEFT}, without the gate: rolled back",
        f"{_LEFT}, with it: rolled back",
        "left out: 3 % in both, +10 %: kept",
    ),
    "channels": (
        "channels: pages lose 5 % in both arms: held back",
        f"{_PAGE}, without the gate: rolled back",
        f"{_PAGE}, with it: rolled back",
        "the same, +10 %: kept",
    ),
    "before_exposure": (
        "before exposure: 10 % of purchases in both: held back",
        f"{_BEFORE}, without the gate: rolled back",
        f"{_BEFORE}, with it: rolled back",
        "before exposure: 10 % in both, a true +10 %: kept",
    ),
    "turnover": (
        "turnover: a tenth of both arms come back: held back",
        f"{_LASTS}, without the gate: kept",
        f"{_LASTS}, with it: kept",
        "+10 %, visitors come back ×1.1: kept",
    ),
}
QUOTED = frozenset(name for names in GATE_ROWS.values() for name in names if name is not None)
