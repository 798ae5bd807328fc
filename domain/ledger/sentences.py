"""Sentences on a portfolio: its figures, the builds behind them, and the next steps."""

from domain.figures import counted, percent
from domain.ledger.portfolio import Portfolio, PortfolioShare
from domain.wording.effect import MOMENTS


def portfolio_headline(portfolio: Portfolio) -> str:
    """Returns the figures of a portfolio's document in a sentence."""
    if portfolio.hold_back is None:
        return "No other build was in front of users a week ago, so there is none to hold back yet."
    if not portfolio.changes:
        return "Users have no change that the hold-back lacks: there is nothing to measure."
    kept = portfolio.kept
    count, hold_back = counted(portfolio.changes, "change"), portfolio.hold_back[:12]
    were = "was" if kept == 1 else "were"
    said = f"{count} came since build {hold_back}; {kept} of them {were} kept"
    if kept:
        together = "" if kept == 1 else " together"
        said += f", and claimed {percent(portfolio.claimed)}{together}"
    return f"{said}. {_measured(portfolio)}"


def _measured(portfolio: Portfolio) -> str:
    effect = portfolio.effect
    if portfolio.experiment_id is None:
        return "All of them together were not measured yet."
    if effect is None or effect.relative is None:
        return "Of all of them together nothing can be said yet."
    ends = effect.interval
    span = "" if ends is None else f" ({percent(ends[0])} to {percent(ends[1])})"
    return (
        f"All of them together brought {percent(effect.relative)}{span},"
        f" measured {MOMENTS[effect.basis]}."
    )


def portfolio_notes(portfolio: Portfolio) -> list[str]:
    """Returns the cautions that belong to the figures."""
    if portfolio.experiment_id is None:
        return []
    treatment, hold_back = str(portfolio.treatment)[:12], str(portfolio.hold_back)[:12]
    notes = [
        f"Units of {treatment} are compared with units of {hold_back}, which lacks these changes."
    ]
    if portfolio.moved_on:
        notes.append(
            f"Users have {str(portfolio.standing)[:12]} now. It carries further changes, which"
            f" {hold_back} lacks, so its units are not compared: the comparison goes on only as"
            f" long as {treatment} keeps a share of its own beside {hold_back}."
        )
    if portfolio.attempt > 1:
        notes.append(
            f"This is try {portfolio.attempt} of these changes, as their own experiments count"
            " too, so its interval is wider than theirs for the same units."
        )
    if portfolio.kept:
        notes.append(
            "A claim was read at the lucky look that decided. The best estimates of the kept"
            f" changes add up to {percent(portfolio.expected)}."
        )
    if portfolio.unmeasured:
        count = len(portfolio.unmeasured)
        notes.append(
            f"{counted(count, 'change')} {'was' if count == 1 else 'were'} measured by no"
            " experiment of their own, and claim nothing."
        )
    return notes


def portfolio_steps(portfolio: Portfolio) -> list[str]:
    """Returns the commands that the comparison needs now; each after its reason."""
    hold_back = portfolio.hold_back
    ended = portfolio.decided and portfolio.follow_up != "running"
    if hold_back is None or not portfolio.changes or ended:
        return []
    need, treatment = portfolio.share, str(portfolio.treatment)
    declared = portfolio.hold_back_share or 0
    share = declared if 0 < declared < 1 else need.share
    steps: list[str] = []
    if not 0 < declared < 1:
        steps.append(
            f"Send {100 * share:g} % of units to {hold_back[:12]}, sticky, within a day, and say"
            f" so{_reason(need)}: deploy-reward deploy {hold_back} --allocation {share:g}"
        )
    if portfolio.moved_on:
        steps.append(
            f"Leave {100 * share:g} % of units on {treatment[:12]} too:"
            f" deploy-reward deploy {treatment} --allocation {share:g}"
        )
    elif portfolio.experiment_id is not None:
        steps.append(
            "Whenever another build is promoted meanwhile, leave as many units on"
            f" {treatment[:12]}:"
            f" deploy-reward deploy {treatment} --allocation {share:g}"
        )
    return steps


def _reason(need: PortfolioShare) -> str:
    if need.days is None:
        return ""
    return f" (finds {percent(need.lift)} in about {counted(max(1, round(need.days)), 'day')})"
