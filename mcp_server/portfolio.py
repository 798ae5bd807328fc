"""The portfolio, cut to a kilobyte: the whole first, then the steps, then single changes."""

from domain.ledger import portfolio as ledger
from domain.ledger.sentences import portfolio_headline, portfolio_steps
from mcp_server.contract import Portfolio, PortfolioChange
from mcp_server.explanation import cut, fitted, rounded

SENTENCE_BYTES = 280
STEP_BYTES = 300


def portfolio(document: ledger.Portfolio) -> Portfolio:
    """Returns a portfolio as an agent reads it.

    Args:
        document: The answer of `GET /v1/reward/portfolio`.

    Returns:
        A portfolio of at most 1,024 bytes as JSON; `left_out` counts what did not fit.
    """
    effect, interval = document.effect, document.effect and document.effect.interval
    whole = Portfolio(
        sentence=cut(portfolio_headline(document), SENTENCE_BYTES),
        experiment_id=document.experiment_id,
        begin=document.registration,
        effect=_short(effect and effect.relative),
        interval=interval and (rounded(interval[0], 3), rounded(interval[1], 3)),
        basis=effect and effect.basis,
        claimed=_short(document.claimed) or 0.0,
        expected=_short(document.expected) or 0.0,
        changes=[
            PortfolioChange(
                experiment_id=row.experiment_id,
                verdict=row.verdict,
                claimed=_short(row.claimed),
                effect=_short(row.effect),
            )
            for row in document.measurements
        ],
        steps=[cut(step, STEP_BYTES) for step in portfolio_steps(document)],
        left_out=0,
    )
    # The oldest change goes first.
    return fitted(whole, changes=0, steps=0)


def _short(share: float | None) -> float | None:
    return share and rounded(share, 3)
