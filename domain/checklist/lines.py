"""The lines of a checklist: checks of a project's set-up, each with its observation and fix."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from domain.cause import MOST_CROSSED, Cause
from domain.checklist.admissions import Admissions
from domain.checklist.line import ChecklistLine
from domain.checklist.own_splits import OwnSplits
from domain.checklist.setup import (
    CrowdedUnit,
    OpenExperiment,
    ProjectSetup,
    Seen,
    Traffic,
    UnmatchedFilter,
)
from domain.figures import counted, first_names, length_of_time
from domain.wording.base_move import base_move_sentence
from domain.wording.left_out import CURES, left_out_sentence
from domain.wording.registered import FAR, FAR_SECONDS, SEND_OR_DROP, rate_text, unseen_guardrails
from domain.wording.registration import nothing_to_compare_advice, nothing_to_compare_sentence
from domain.words import EndedBecause

# The checks in the order of a set-up, by the words that every face shows.
CHECKS = (
    "events",
    "commit on events",
    "commit known",
    "routes matched",
    "canary and control both get traffic",
    "target seen",
    "guardrails seen",
    "revenue joinable",
    "clock skew",
    "crossover",
    "rejected, late, limited",
)
# A line beside these for each experiment that is set aside, and none while none is.
COMPUTED = "experiment computed"
# A line while the log cannot be sealed into files, whoever's events they are.
SEALED = "log sealed"
# A line once enough visitors have come back to tell what the router keeps.
FITTING = "unit fits the router"
# A line for each experiment that leaves outcomes out, and none while none does.
COUNTED = "outcomes counted"
# A line once a night has split the traffic by lot.
SPLIT = "splits by lot"
# A line once events came that name no unit.
NAMED = "unit on events"
# A line once values came that say nothing.
SAYING = "values say something"
# A line once spans came that are part of a request, or whose route no graph can have.
READ = "spans read whole"
# A line for units that have a large share of the events of each build.
APART = "a unit is one visitor"
# A line for each metric of whose events none has the properties that it asks for.
MATCHED = "filter matched"
# A line for each ratio whose `per` events never came.
DIVIDED = "ratio taken over"
# The first line turns red after so long without an event.
SILENCE = timedelta(minutes=15)
# A tick comes each minute, and a run of the pipeline may hold some of them up.
_STOPPED = timedelta(minutes=10)
# Every exposure should name its commit: a build that forgets to shows as its share of the
# traffic, and canaries begin at a few percent.
_LEAST_NAMED = 0.99
# A page of another app, or a page that does not exist, is no fault of the set-up.
_LEAST_MATCHED = 0.9
_MOST_SKEWED = 0.05
_MOST_REFUSED = 0.05
# Among fewer units an arm of a small share has none by chance.
_SOME_UNITS = 20
_SOME_BLOCKS = 3
_SOME_REVENUE = 5
_LEAST_JOINED = 0.01
_NAMES_SHOWN = 5
_LONGEST_SHOWN = 40

_NO_EVENT = "No event to look at."
_SEND = "Send events first: the line `events`."
_POST = (
    'POST /v1/events with the public key: {"event": "page_view", "session_id": "s1",'
    ' "commit": "<sha>", "route": "/"}'
)
_START = (
    "Start Dagster: `deploy-reward up`, or `deploy-reward dagster`; where it runs, its failed runs"
    " say why."
)
_SILENT_FIX = (
    "Look at the sender: does it run, and is each of its requests to POST /v1/events answered 202?"
)
_UNSEALED_FIX = (
    "Tell whoever runs the service: the lake (SERVICE_LAKE) needs room, or a folder or bucket that"
    " can be written; Dagster's check of `sealed_log` shows the whole error. No event is lost"
    " meanwhile, and the next run goes on."
)


# A judgment says whether it is so, what was seen, and what to do if it is not so.
_Judgment = tuple[bool | None, str, str]
_Judge = Callable[[ProjectSetup], _Judgment]


def lines(setup: ProjectSetup) -> list[ChecklistLine]:
    """Returns the lines of every project, in the order of a set-up, the unit's, and single faults.

    Faults are there for events without a unit, filters that nothing matches, ratios over nothing,
    experiments that leave outcomes out or cannot be computed, and while the log cannot be sealed.
    """
    of_all = [
        ChecklistLine(
            check=check,
            ok=ok,
            seen=seen,
            fix="" if ok else fix,
            experiment_id=None if ok is not False else _experiment_of(seen, judge, setup),
        )
        for check, judge in zip(CHECKS, _LINES, strict=True)
        for ok, seen, fix in [judge(setup)]
    ]
    return [
        *of_all,
        *_unit(setup),
        *_splits(setup.splits),
        *_unnamed(setup.admissions or Admissions()),
        *_nothing(setup.admissions or Admissions()),
        *_spans(setup.admissions or Admissions()),
        *_crowded(setup.crowded),
        *map(_unmatched, setup.unmatched),
        *(_undivided(*ratio) for ratio in setup.undivided),
        *(
            ChecklistLine(check=check, ok=False, seen=seen, fix=fix, experiment_id=experiment_id)
            for check, seen, fix, experiment_id in _faults(setup)
        ),
    ]


def _experiment_of(seen: str, judge: _Judge, setup: ProjectSetup) -> str | None:
    """Returns the experiment whose own fault a check shows; None where it is the project's."""
    if judge not in _OF_EXPERIMENTS:
        return None
    alone = ((each, judge(replace(setup, experiments=[each]))) for each in setup.experiments)
    return next((each.experiment_id for each, judged in alone if judged[1] == seen), None)


def _faults(setup: ProjectSetup) -> Iterator[tuple[str, str, str, str | None]]:
    for experiment in setup.experiments:
        for seen, fix in _left_out(experiment):
            yield COUNTED, f"{experiment.experiment_id}: {seen}", fix, experiment.experiment_id
    for experiment_id, reason in setup.set_aside:
        fix = f"`deploy-reward close {experiment_id}`, or update the service."
        yield COMPUTED, f"{experiment_id}: {reason}", fix, experiment_id
    if setup.unsealed is not None:
        # Its kind alone is shown: the message names folders and buckets, which are the operator's.
        kind = setup.unsealed.partition(":")[0]
        yield (
            SEALED,
            f"Hours of the log could not be written to files: {kind}.",
            _UNSEALED_FIX,
            None,
        )


def _unit(setup: ProjectSetup) -> Iterator[ChecklistLine]:
    returning = setup.returning
    if returning.unit is None:
        return
    keeps = "keeps visitors" if returning.unit == "user" else "draws each session anew"
    seen = (
        f"The router {keeps}: {returning.kept:,} of {returning.users:,} visitors got the build of"
        f" fewer sessions again when they came back; by lot {returning.expected:,.0f} would."
    )
    if setup.unit == "auto":
        seen = f"{seen} New experiments count {returning.unit}s."
    ok = setup.unit in ("auto", returning.unit)
    also = ", and send `user_ref` with every event" if returning.unit == "user" else ""
    fix = "" if ok else f"Set the project's `unit` to `{returning.unit}`{also}."
    yield ChecklistLine(check=FITTING, ok=ok, seen=seen, fix=fix)


def _splits(splits: OwnSplits | None) -> Iterator[ChecklistLine]:
    if splits is None or not splits.results:
        return
    answers, allowed = ", ".join(splits.sentences), f"at most {splits.alpha:.0%} asked for"
    seen = f"On your own traffic of the week before {splits.night}: {answers} ({allowed})."
    yield ChecklistLine(check=SPLIT, ok=not splits.wrong, seen=seen, fix=splits.remedy)


def _unnamed(admissions: Admissions) -> Iterator[ChecklistLine]:
    lacking = admissions.without_unit
    if not lacking:
        return
    of = lacking + _events_read(admissions)
    ok = lacking <= _MOST_REFUSED * of
    seen = f"{lacking:,} of {of:,} events and spans named no unit in 15 minutes, and were refused."
    yield ChecklistLine(check=NAMED, ok=ok, seen=seen, fix="" if ok else _NAME_UNIT)


def _nothing(admissions: Admissions) -> Iterator[ChecklistLine]:
    if admissions.nothing:
        seen = (
            f"{counted(admissions.nothing, 'value')} in 15 minutes said nothing, as `undefined`,"
            f" `null` or a commit of zeros do; the last stood in `{admissions.lacking}`."
        )
        yield ChecklistLine(check=SAYING, ok=False, seen=seen, fix=_SAY)


def _spans(admissions: Admissions) -> Iterator[ChecklistLine]:
    split, foreign = admissions.split_spans, admissions.untranslated_spans
    if split or foreign:
        of = _events_read(admissions)
        seen = (
            f"Of {of:,} events in 15 minutes {split:,} are of a request's second span, whose"
            f" first came in another export; of {foreign:,} spans the path stands for a route"
            " that no graph has."
        )
        ok = max(split, foreign) <= _MOST_REFUSED * of
        yield ChecklistLine(check=READ, ok=ok, seen=seen, fix="" if ok else _WHOLE)


def _crowded(units: Sequence[CrowdedUnit]) -> Iterator[ChecklistLine]:
    if units:
        first, more = units[0], len(units) - 1
        seen = (
            f"The {first.kind} `{_cut(first.unit)}` has {first.events:,} of {first.of:,} events,"
            f" above 1 % of each build’s{f', and {more:,} more have' if more else ''}."
        )
        fix = f"Give each visitor a {first.kind} of its own: what many share is a single unit."
        yield ChecklistLine(check=APART, ok=False, seen=seen, fix=fix)


def _unmatched(asked: UnmatchedFilter) -> ChecklistLine:
    metric, name = _cut(asked.metric), asked.property
    seen = f"None of the newest {asked.events:,} events of `{metric}` has what its `where` asks for"
    if not asked.carrying:
        fix = f"Send `{name}` in `properties`, of revenue in `attributes`; or correct `where`."
        return ChecklistLine(check=MATCHED, ok=False, seen=f"{seen}: none has `{name}`.", fix=fix)
    # A value may be rare.
    seen = f"{seen}. Most that have `{name}` have {_cut(asked.usual or '')}."
    fix = f"Compare the values in `where` of `{metric}` with those that are sent."
    return ChecklistLine(check=MATCHED, ok=None, seen=seen, fix=fix)


def _undivided(metric: str, per: Sequence[str]) -> ChecklistLine:
    seen = f"No event ever came that the ratio `{_cut(metric)}` is taken over: {_listed(per)}."
    fix = f"Send such events, or correct `per` of `{_cut(metric)}`."
    return ChecklistLine(check=DIVIDED, ok=False, seen=seen, fix=fix)


def _left_out(experiment: OpenExperiment) -> list[tuple[str, str]]:
    if experiment.target is None:
        return []
    outcomes = experiment.left_out
    fixes = [CURES[Cause(row.reason)] for row in outcomes if row.reason in CURES]
    seen = left_out_sentence(outcomes, experiment.target, "user")
    return [] if seen is None else [(seen, " ".join(fixes))]


def _events(setup: ProjectSetup) -> _Judgment:
    if (stopped := _stopped(setup)) is not None:
        return stopped
    here, latest = " and ".join(setup.environments), setup.newest_event_at
    elsewhere = sorted(
        name
        for name, traffic in setup.traffic.items()
        if name not in setup.environments
        and (latest is None or traffic.newest_at - latest > SILENCE)
    )
    if elsewhere:
        seen = f"No event of {here}, where it is measured; some of {_listed(elsewhere)}."
        return False, seen, f"Leave `environment` out of events, or set it to {here}."
    if latest is None:
        return _history(setup) if setup.has_history else (False, "No event has come yet.", _POST)
    return _recent(setup, here, max(timedelta(0), setup.now - latest))


def _stopped(setup: ProjectSetup) -> _Judgment | None:
    """Judges whether the pipeline runs; None where it does, and in a project's first minutes."""
    if setup.now - (setup.ticked_at or setup.created_at) <= _STOPPED:
        return None
    seen = "No verdict is computed: no tick ever came."
    if setup.ticked_at is not None:
        seen = (
            f"No verdict is computed: no tick ended well since {setup.ticked_at:%d %b %H:%M} UTC."
        )
    return False, seen, _START


def _history(setup: ProjectSetup) -> _Judgment:
    to = setup.history_to
    seen = f"History alone came{'' if to is None else f', with units up to {to:%d %b %H:%M} UTC'}."
    fix = "Send live events too, to POST /v1/events, once there is traffic."
    return None if setup.experiments else True, seen, fix


def _recent(setup: ProjectSetup, here: str, age: timedelta) -> _Judgment:
    if age <= SILENCE:
        count = _events_of(_sum(_measured(setup), "of_all"))
        seen = f"{count} of {here} in the newest 5 minutes. The last came {_ago(age)}."
        return True, seen, ""
    if not setup.experiments:
        return True, f"The last event came {_ago(age)}; no experiment waits for any.", ""
    return False, f"The last event came {_ago(age)}.", _SILENT_FIX


def _ago(age: timedelta) -> str:
    return f"{length_of_time(age.total_seconds(), least=1)} ago"


def _commit_on_events(setup: ProjectSetup) -> _Judgment:
    traffic = _measured(setup)
    of, named = _sum(traffic, "events"), _sum(traffic, "committed")
    if not of:
        return None, _NO_EVENT, _SEND
    seen = f"{named:,} of {of:,} {_what(traffic)} name a commit."
    fix = "Send `commit`, the sha of the build that served the page, with every event."
    return named >= _LEAST_NAMED * of, seen, fix


def _commit_known(setup: ProjectSetup) -> _Judgment:
    here = " and ".join(setup.environments)
    traffic = _measured(setup)
    commits = [commit for each in traffic for commit in each.commits]
    of, unknown = _count(commits), [commit for commit in commits if not commit.known]
    record = "Record each deploy: `deploy-reward deploy SHA`, or POST /v1/deploys."
    if not setup.deployed:
        seen = f"No deploy is recorded; {_events_of(of)} name a commit."
        return (False if of else None), seen, record
    if not of:
        return None, "No event names a commit.", "Send `commit` first: the line above."
    missed = _count(unknown)
    seen = f"{of - missed:,} of {of:,} {_what(traffic)} with a commit are of a deploy to {here}"
    if setup.rivals:
        first, second = (commit[:12] for commit in setup.rivals[0])
        seen = (
            f"{first} and {second} are both served, neither was built on the other, and no share of"
            " either is declared."
        )
        fix = (
            "Give each service an environment of its own; of a canary declare the share:"
            f" `deploy-reward deploy {second} --allocation SHARE`."
        )
        return False, seen, fix
    if unknown:
        shown = _shown(unknown, limit=12)
        fix = f"Record it: `deploy-reward deploy {unknown[0].value[:12]}`; or correct `commit`."
        if unknown[0].is_ambiguous:
            fix = "Send the whole sha as `commit`: as it is, it begins several commits."
        return missed <= (1 - _LEAST_NAMED) * of, f"{seen}; not so: {shown}.", fix
    return True, f"{seen}.", ""


def _routes_matched(setup: ProjectSetup) -> _Judgment:
    traffic = _measured(setup)
    of, routed = _sum(traffic, "events"), _sum(traffic, "routed")
    if not of:
        return None, _NO_EVENT, _SEND
    upload = "Upload the graph of what is deployed: POST /v1/static-graphs."
    if not setup.graph:
        return None, "No static graph: every route counts as affected by any change.", upload
    if routed < _LEAST_MATCHED * of:
        seen = f"{routed:,} of {of:,} {_what(traffic)} name a route."
        return False, seen, "Send `route` with every event: its pattern in the graph, or the path."
    routes = [route for each in traffic for route in each.routes]
    lost, counted = [route for route in routes if not route.known], _count(routes)
    if not counted:
        return None, "No route to look at.", _SEND
    seen = f"{counted - _count(lost):,} of {counted:,} {_what(traffic)} are on a route of the graph"
    if lost:
        fix = f"{upload[:-1]}; or send `route` as the graph has it."
        detail = f"{seen}; not so: {_shown(lost, limit=_LONGEST_SHOWN)}."
        return _count(lost) <= (1 - _LEAST_MATCHED) * counted, detail, fix
    return True, f"{seen}.", ""


def _both_arms(setup: ProjectSetup) -> _Judgment:
    if not setup.experiments:
        return _no_experiment()
    # A build that everybody gets is compared with nothing, and hinders no canary.
    compared = [
        each
        for each in setup.experiments
        if each.control_state.missing is None and each.control_state.ending is None
    ]
    return _worst(_shares(experiment, setup) for experiment in compared or setup.experiments)


def _shares(experiment: OpenExperiment, setup: ProjectSetup) -> _Judgment:
    name, ending = experiment.experiment_id, experiment.control_state.ending
    if ending is not None:
        over = "withdrawn" if ending.because is EndedBecause.WITHDRAWN else "given to everybody"
        return None, f"{name}: the canary was {over}.", "Nothing to do: it ends by itself."
    if (judgment := _without_units(experiment, setup)) is not None:
        return judgment
    seen = (
        f"{name}: {experiment.treated:,} units of treatment, {experiment.controlled:,} of control"
    )
    recent = timedelta(hours=setup.contrast_hours)
    newest, shared = experiment.newest_block, experiment.newest_shared_block
    if newest is not None and shared is not None and newest - shared < recent:
        both = f"both in the block of {shared:%d %b %H:%M} UTC."
        return True, f"{seen} in a day; {both}{_first_look(experiment, setup.now)}", ""
    if (judgment := _beside(experiment)) is not None:
        return judgment
    if experiment.treated + experiment.controlled < _SOME_UNITS:
        return (
            None,
            f"{seen} so far.{_first_look(experiment, setup.now)}",
            "Wait for more units of both arms.",
        )
    sha = (experiment.treatment or "")[:12]
    lacking, fix = (
        ("treatment", f"Let the router send {sha} a share above 0, and its events name it.")
        if experiment.treated < experiment.controlled
        else ("control", f"Let the router leave control a share: {sha} must not get everybody.")
    )
    return False, f"{seen} in a day; no 5 minutes have both, {lacking} has none.", fix


def _without_units(experiment: OpenExperiment, setup: ProjectSetup) -> _Judgment | None:
    """Judges an experiment that has no unit yet; None where it has some."""
    name = experiment.experiment_id
    if not experiment.bound:
        fix = "Record the deploy that carries the change: `deploy-reward deploy SHA`."
        if experiment.unshared:
            fix = "Post its first share: `deploy-reward deploy SHA --allocation SHARE`."
            return None, f"{name}: its canary has no share of the traffic yet.", fix
        return None, f"{name} waits for its deploy{_elsewhere(experiment)}.", fix
    if experiment.newest_block is None:
        seen = f"{name}: no unit in {experiment.closed_blocks:,} closed blocks of 5 minutes."
        if experiment.closed_blocks < _SOME_BLOCKS or not _measured(setup):
            fix = "Wait for a block to close: 5 minutes and the grace."
            return None, f"{seen}{_first_look(experiment, setup.now)}", fix
        return False, seen, f"Mend the lines above; then `deploy-reward explain {name}`."
    return None


def _beside(experiment: OpenExperiment) -> _Judgment | None:
    """Judges by the builds beside the treatment; None where they explain nothing."""
    name, state = experiment.experiment_id, experiment.control_state
    if state.missing is not None:
        alone = state.missing
        seen = f"{name}: {nothing_to_compare_sentence(alone)}"
        return None, seen, nothing_to_compare_advice(alone)[0]
    if state.moved is not None:
        base = state.moved.rebase_on
        fix = f"Rebase it on {base[:12]}: `deploy-reward explain {name}` says how."
        return False, f"{name}: {base_move_sentence(base)}", fix
    return None


def _first_look(experiment: OpenExperiment, now: datetime) -> str:
    if (at := experiment.first_look_at) is None:
        return ""
    seconds = (at - now).total_seconds()
    far = f", in {length_of_time(seconds)}. {FAR}" if seconds > FAR_SECONDS else "."
    return f" Its first look can come at {at:%d %b %H:%M} UTC{far}"


def _elsewhere(experiment: OpenExperiment) -> str:
    if not experiment.elsewhere:
        return ""
    sha = (experiment.treatment or "")[:12]
    return (
        f" to {experiment.environment}; so far {sha} is deployed to {_listed(experiment.elsewhere)}"
    )


def _target_seen(setup: ProjectSetup) -> _Judgment:
    if not setup.experiments:
        name, sources = setup.target
        ok, seen, fix = _target(name, setup, sources=sources, converted=False)
        # Nobody asks for the default metric yet: that it never came is no fault.
        return ok or None, seen, fix
    return _worst(
        _target(each.metric, setup, sources=each.sources, converted=each.converted)
        for each in setup.experiments
    )


def _target(
    metric: str, setup: ProjectSetup, *, sources: Sequence[str], converted: bool
) -> _Judgment:
    names, rates = setup.names, {each.event: rate_text(each) for each in setup.received}
    name = _cut(metric)
    if converted or set(sources) & set(names):
        often = " and ".join(rates[source] for source in sources if source in rates)
        return True, f"`{name}` was received{often and f', {often}'}.", ""
    if not names:
        return None, _NO_EVENT, _SEND
    come = [f"{_cut(each)} ({rates[each]})" if each in rates else _cut(each) for each in names]
    seen = f"No `{name}` event was received, but these: {first_names(come, _NAMES_SHOWN)}."
    event = _cut(sources[0])
    fix = f'Send {{"event": "{event}", "session_id": ...}} when it happens, or measure what comes.'
    return False, seen, fix


def _guardrails_seen(setup: ProjectSetup) -> _Judgment:
    if not setup.experiments:
        return _no_experiment()
    if not setup.names:
        return None, _NO_EVENT, _SEND
    return _worst(map(_guardrails, setup.experiments))


def _guardrails(experiment: OpenExperiment) -> _Judgment:
    unseen = [_cut(name) for name in experiment.never_received if name != experiment.metric]
    if not unseen:
        return True, "Each guardrail that a keep waits for was received.", ""
    return False, f"{experiment.experiment_id}: {unseen_guardrails(unseen)}", SEND_OR_DROP


def _revenue_joinable(setup: ProjectSetup) -> _Judgment:
    tested, joined = setup.revenue_tested, setup.revenue_joined
    if not setup.has_revenue:
        seen = "No revenue event to look at."
        return None, seen, "None is needed, unless a metric is money: POST /v1/revenue/events."
    traffic = _measured(setup)
    of, named = _sum(traffic, "of_all"), _sum(traffic, "named")
    name = "Send `user_ref` with runtime events too, once the user is known."
    same = "Send the same `user_ref` for the same user in revenue and runtime events."
    if tested >= _SOME_REVENUE:
        seen = f"The users of {joined:,} of the last {tested:,} revenue events were exposed."
        if joined >= _LEAST_JOINED * tested:
            return True, seen, ""
        return (
            False,
            f"{seen} {named:,} of {of:,} runtime events name a user.",
            same if named else name,
        )
    if not of:
        return None, _NO_EVENT, _SEND
    seen = f"{named:,} of {of:,} runtime events name the user that revenue events are joined by."
    return named > 0, seen, name


def _clock_skew(setup: ProjectSetup) -> _Judgment:
    traffic = _measured(setup)
    of, skewed = _sum(traffic, "of_all"), _sum(traffic, "skewed")
    if not of:
        return None, _NO_EVENT, _SEND
    late = (
        f"over their grace ({setup.grace_seconds:g} s, or their metric's own) before or 5 s after"
    )
    seen = f"{skewed:,} of {of:,} events are dated {late} their receipt"
    if skewed:
        mean = sum(part.skew_seconds * part.skewed for part in traffic) / skewed
        seen += f", by {length_of_time(abs(mean))} {'before' if mean > 0 else 'after'} in the mean"
    fix = "Send `sent_at` beside `events`, by which a wrong clock is corrected; and send at once."
    return skewed <= _MOST_SKEWED * of, f"{seen}.", fix


def _crossover(setup: ProjectSetup) -> _Judgment:
    if not setup.experiments:
        return _no_experiment()
    return _worst(_crossings(experiment) for experiment in setup.experiments)


def _crossings(experiment: OpenExperiment) -> _Judgment:
    name = experiment.experiment_id
    if experiment.newest_block is None:
        return (
            None,
            f"{name}: no unit yet.",
            "Wait for units: the line `canary and control both get traffic`.",
        )
    of = "" if experiment.units is None else f" of {experiment.units:,}"
    seen = f"{name}: {experiment.crossed:,}{of} units were served both arms."
    fix = "Make the router sticky: the arm by a hash of `session_id`, the same at every request."
    sticky = experiment.units is None or experiment.crossed <= MOST_CROSSED * experiment.units
    return sticky, seen, fix


def _refused(setup: ProjectSetup) -> _Judgment:
    admissions = setup.admissions
    if admissions is None:
        return None, "No request to /v1/events in the last 15 minutes.", _SEND
    events = _events_read(admissions)
    why = "" if admissions.reason is None else f" (the last: {admissions.reason})"
    sampled = f", {admissions.sampled_out:,} outside the sample" if admissions.sampled_out else ""
    seen = (
        f"{admissions.rejected:,} of {events:,} events rejected{why},"
        f" {admissions.late:,} late{sampled};"
        f" {admissions.limited:,} of {admissions.requests:,} requests limited, in 15 minutes."
    )
    if admissions.limited > _MOST_REFUSED * admissions.requests:
        return False, seen, "Send up to 500 events a request, or raise `rate_limits` in settings."
    if admissions.rejected > _MOST_REFUSED * events:
        return False, seen, _correction(admissions.reason)
    fix = "Send events when they occur: none counts once its window has closed."
    return admissions.late <= _MOST_REFUSED * events, seen, fix


def _events_read(admissions: Admissions) -> int:
    return admissions.accepted + admissions.rejected + admissions.sampled_out


_NAME_UNIT = (
    "Name the session in every event: `session_id`; of spans and logs `session.id`, or `span_unit`"
    " in settings."
)

_WHOLE = (
    "Keep a trace's spans in the same export (Collector: `groupbytrace`); send `url.path`, by which"
    " a graph knows the route."
)

_SAY = (
    "Let its sender send a value, or leave the member out: what is a commit, route or user is"
    " unknown, all else refused."
)


def _correction(reason: str | None) -> str:
    if reason == "origin_not_allowed":
        return "Name the site in `allowed_origins`: `deploy-reward settings apply FILE`."
    return f"Correct what the answers of POST /v1/events name: {reason}."


_LINES: Sequence[_Judge] = (
    _events,
    _commit_on_events,
    _commit_known,
    _routes_matched,
    _both_arms,
    _target_seen,
    _guardrails_seen,
    _revenue_joinable,
    _clock_skew,
    _crossover,
    _refused,
)
_OF_EXPERIMENTS = (_both_arms, _target_seen, _guardrails_seen, _crossover)

# --- What several lines say -----------------------------------------------------------------------


def _measured(setup: ProjectSetup) -> list[Traffic]:
    return [
        setup.traffic[environment]
        for environment in setup.environments
        if environment in setup.traffic
    ]


def _sum(traffic: Iterable[Traffic], member: str) -> int:
    return sum(getattr(part, member) for part in traffic)


def _count(values: Iterable[Seen]) -> int:
    return sum(value.events for value in values)


def _what(traffic: Iterable[Traffic]) -> str:
    return "page views" if all(part.page_views for part in traffic) else "events"


def _events_of(count: int) -> str:
    return counted(count, "event")


def _no_experiment() -> _Judgment:
    fix = "Register the change: `deploy-reward register`, or POST /v1/reward/register."
    return None, "No experiment is open.", fix


def _worst(judgments: Iterable[_Judgment]) -> _Judgment:
    """Returns the first failed judgment, else the first open, else the first passed judgment."""
    return min(judgments, key=lambda judgment: {False: 0, None: 1, True: 2}[judgment[0]])


def _shown(values: Sequence[Seen], *, limit: int) -> str:
    return ", ".join(f"{_cut(value.value, limit)} ({value.events:,})" for value in values[:3])


def _listed(names: Sequence[str]) -> str:
    return first_names([_cut(name) for name in names], _NAMES_SHOWN)


def _cut(name: str, limit: int = _LONGEST_SHOWN) -> str:
    return name if len(name) <= limit else f"{name[: limit - 1]}…"
