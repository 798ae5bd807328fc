"""The warnings of an evidence document, each in a sentence with what to do."""

from domain.evidence.document import Evidence
from domain.figures import counted
from domain.lineage.flag import is_segment
from domain.wording.left_out import CURES, UNKNOWN_USER, left_out_values
from domain.wording.metrics import metric_rows

WARNINGS = {
    "retrospective": "It was registered after its outcomes, or on imported or replayed events, so"
    " whoever knew the numbers could choose what it measures. Take it as a hint: the ledger leaves"
    " it out, and nothing should be trained on it.",
    "base_assumed": "No base commit was posted with the deploy, so the commit that served before"
    " it was used. Send the diff's base_commit to be exact.",
    "metric_never_seen": "No event of the target metric was ever received. Check its name, and that"
    " events of that name arrive.",
    "none_in_window": "Events of the target metric are received, but none counts: none comes from a"
    " unit of the experiment within the window after its exposure. Check the window, and that the"
    " events name the same session as the page view.",
    "base_moved": "At this look users had another build than this change stands on.",
    "declaration_differs": "Users have another build than the deploys declare. Post"
    " what the router does: allocation 1 for what everybody gets, 0 for what was withdrawn.",
    "unknown_commit": "{} came with a commit that no deploy recorded, so they are in no arm. Post"
    " each deploy before it gets traffic; send no commit with the events of another program.",
    "unknown_build": "{} came without a commit, so they are in no arm. Send the commit with each"
    " event of the build.",
    "ambiguous_commit": "Some events name so little of a commit's id that it begins several"
    " commits, so they do not count. Let the build report the whole id.",
    "unknown_user": CURES[UNKNOWN_USER],
    "unmatched_route": "Some events name a route that is not in the static graph. Upload the graph"
    " of this version.",
    "unsigned": "Some events carry no valid signature of the router and do not count.",
    "outcomes_left_out": "Some outcomes do not count: the sentence says how many in each arm, and"
    " why.",
    "values_left_out": "Some units carry another value of the flag, each of less than 1 % of them,"
    " and are in neither arm: {}.",
    "control_unseen": "No unit carries control's value of the flag. `false`, `null` and the like"
    " say that a unit is not in the experiment: where control has such a value, or another,"
    " register the change again and name it as `control`.",
    "uncapped": "The metric is a mean without a cap: too few values came before the start to choose"
    " a cap. A single very large value can hide a difference. Set the metric's cap.",
    "unwatched": "{}",
    "guardrails_unproven": "The change is kept, but the time was too short to show that every"
    " guardrail is unharmed.",
    "twin_unknown": "The change is kept unseen how many units each arm should have: for most of"
    " them no share is declared. Declare the share of each build with its deploy.",
    "set_aside": "Its data cannot be computed at the moment, so you see the last verdict that"
    " could be computed. All other experiments go on.",
    "day_unequal": "A day of its counts differs from the events that it was made of, so it is not"
    " decided until that day is repaired: materialize the day of session_cells in Dagster, or run"
    " `deploy-reward rebuild`.",
    "fading": "The effect changed between the first and the second half of the experiment. A gain"
    " may wear off, or grow: look again some weeks after the decision.",
    "fewer_so_far": "{} What is missing may be late or lost: that is known when the whole window of"
    " the metric has passed. Give the change no larger share before.",
    "uneven_segments": "Some segments of your users are split unequally between the arms: {}. They"
    " are compared each by itself, so the answer holds; but find out why the router does that.",
    "unverified": "The outcomes that your servers sent or signed do not show the gain on their own:"
    " it rests on events that anybody can send. Send the metric from your servers.",
    "sessions_cut": "Sessions end early in treatment, and visitors begin another: that alone may"
    " explain the lower rate. Look for what ends them (a lost cookie, a storage key with a new"
    " name, a new tab), or set unit to user, so that a visitor counts once.",
    "who_came": "The arms differ in who came: more users of an arm were known before the canary."
    " Either the build brings other users, or it sends some under a new user_ref.",
    "turnover_unseen": "Fewer than a fifth of the sessions name a user, so nobody can tell whether"
    " visitors of an arm start more sessions than those of the other. Send user_ref where you"
    " know it.",
    "allocation_undeclared": "The share of traffic that gets the change is not declared, so nothing"
    " can check that the split is fair. Post allocation with the deploy.",
}


def _fewer_so_far(evidence: Evidence) -> str:
    row = next((row for row in metric_rows(evidence) if row.state == "fewer so far"), None)
    if row is None:
        return ""
    name = evidence.policy.target.name
    return (
        f"{row.part.capitalize()} treatment has {row.treatment} of {name}, control {row.control}."
    )


def warning_sentences(evidence: Evidence) -> list[str]:
    """Returns the warnings of an evidence document, each in a sentence."""
    splits = [split.by for split in evidence.splits or () if is_segment(split.by)]
    unit, counts = evidence.policy.unit, evidence.counts
    named = {
        "unknown_commit": counted(counts.unknown_commit, unit),
        "unknown_build": counted(counts.unknown_build, unit),
        "fewer_so_far": _fewer_so_far(evidence),
        "uneven_segments": ", ".join(splits),
        "unwatched": " ".join(evidence.policy.unwatched),
        "values_left_out": left_out_values(evidence),
    }
    return [
        WARNINGS.get(word, word).replace("{}", named.get(word, "")) for word in evidence.warnings
    ]
