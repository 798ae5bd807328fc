"""The experiments of an import: their form, their deploys, their settings and registrations."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection

from api.routes.deploys import Deploy
from api.routes.experiments import RegistrationBody
from api.wire.problem import Problem
from api.wire.shape import validated
from cli.imports.experiments_file import Experiment, ExperimentsFile, length_in_seconds
from cli.imports.faults import ImportFailedError, name_list, suggestion
from cli.imports.spool import Tally
from cli.operations.actor import command_actor
from domain.currency import minor_unit_digits
from domain.document import time_text
from domain.lineage.commit_id import ambiguous
from domain.metric import metric_definition
from domain.registration import Registration
from storage.experiments.deploys import Receipt, record_deploy
from storage.experiments.experiments import register
from storage.experiments.policy import watched_guardrails
from storage.postgres.refusal import Invalid
from storage.tenants.setting_changes import apply_settings
from storage.tenants.settings import Settings, parse_settings, stored_settings
from storage.views.history_counts import bound_experiment, names_in_log

# Control was there before the file begins, by as long as sessions in flight may last.
_CONTROL_BEFORE = timedelta(days=1)
_DEPLOY = TypeAdapter(Deploy)
_REGISTRATION = TypeAdapter(RegistrationBody)


@dataclass(frozen=True, kw_only=True)
class ExperimentPlan:
    """The experiments of an import, checked before the first row is read."""

    named: ExperimentsFile
    project_id: int
    settings: Settings
    defined: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def experiments(self) -> Sequence[Experiment]:
        """The experiments, in the file's order."""
        return self.named.experiments

    def sources(self, name: str) -> list[str]:
        """Returns the names of a metric's events."""
        return list(metric_definition(name, self.settings.metrics).sources)

    def require_named(self, connection: Connection, tally: Tally) -> None:
        """Holds that the file, or the log, has the commits and events that experiments name."""
        for number, experiment in enumerate(self.experiments):
            place = "experiment" if len(self.experiments) == 1 else f"experiment {number + 1}"
            for member in ("control_commit", "treatment_commit"):
                commit = getattr(experiment, member)
                written = spelled(tally.commits, commit)
                if len(whole := _whole(written)) > 1:
                    raise ImportFailedError(
                        f"{place}.{member}: in the file, {ambiguous(commit, whole)}"
                    )
                if not self._is_logged(
                    connection, commits=written or [commit], known=tally.commits
                ):
                    raise ImportFailedError(
                        f"{place}.{member} is {commit!r}, which no event names:"
                        f" {suggestion(commit, tally.commits)}the file's commits are"
                        f" {name_list(sorted(tally.commits)) or 'none'}"
                    )
            known = tally.events
            for member, name in self._metrics(experiment):
                sources = self.sources(name)
                if not self._is_logged(connection, events=sources, known=known):
                    raise ImportFailedError(
                        f"{place}.{member} is {name!r}, but no event is called"
                        f" {name_list(sources)}: {suggestion(name, known)}the file's"
                        f" events are {name_list(sorted(known)) or 'none'}"
                    )

    def _metrics(self, experiment: Experiment) -> Iterable[tuple[str, str]]:
        yield "target_metric", experiment.target_metric
        for name in experiment.guardrails or ():
            yield "guardrails", name

    def unseen(self, connection: Connection, tally: Tally, experiment: Experiment) -> Sequence[str]:
        """Returns the guardrails without an event in the file and in the log.

        History brings no more of them, so that a keep would wait for them in vain.
        """
        known = tally.events
        return [
            name
            for name in watched_guardrails(self.settings, experiment.guardrails)
            if not self._is_logged(connection, events=self.sources(name), known=known)
        ]

    def _is_logged(
        self,
        connection: Connection,
        *,
        known: Container[str],
        events: Sequence[str] = (),
        commits: Sequence[str] = (),
    ) -> bool:
        if any(name in known for name in (*events, *commits)):
            return True
        environment = self.named.environment
        return bool(
            names_in_log(connection, self.project_id, environment, events=events, commits=commits)
        )

    def register(self, connection: Connection, tally: Tally, receipt: Receipt) -> list[str]:
        """Posts the deploys, applies the settings, registers, and returns the experiments' ids.

        The caller holds the project's lock.
        """
        environment = self.named.environment
        if environment not in tally.first:
            raise ImportFailedError(
                f"experiment: no row is of environment {environment!r}, in which it measures; set"
                f" environment to any of {name_list(sorted(tally.first)) or 'the rows'}"
            )
        start = tally.first[environment]
        deploy_ids = [
            self._post(connection, experiment, start, receipt) for experiment in self.experiments
        ]
        if self.defined:
            # Others may have changed the settings since they were read.
            stored_settings(connection, self.project_id, lock=True)
            again = planned(connection, self.project_id, self.named)
            apply_settings(connection, self.project_id, again.defined, by=command_actor())
        return [
            register(
                connection,
                self.project_id,
                replace(
                    _registration(experiment, deploy_id=deploy_id),
                    unseen_guardrails=self.unseen(connection, tally, experiment),
                ),
                receipt=receipt,
            ).experiment_id
            for experiment, deploy_id in zip(self.experiments, deploy_ids, strict=True)
        ]

    def _post(
        self, connection: Connection, experiment: Experiment, start: datetime, receipt: Receipt
    ) -> str:
        deploy_id = ""
        for members in _deploys(experiment, self.named.environment, start):
            request = validated(_DEPLOY, members).request(None)
            recorded = record_deploy(connection, self.project_id, request, receipt=receipt)
            deploy_id = recorded.record.deploy_id
        return deploy_id


def planned(connection: Connection, project_id: int, named: ExperimentsFile) -> ExperimentPlan:
    """Returns the plan of experiments, held to the rules before any row is read."""
    before = chosen = stored_settings(connection, project_id)
    for number, experiment in enumerate(named.experiments):
        place = "experiment" if len(named.experiments) == 1 else f"experiment {number + 1}"
        try:
            for members in _deploys(experiment, named.environment, _EARLY):
                validated(_DEPLOY, members)
            _registration(experiment)
        except Problem as problem:
            raise ImportFailedError(f"{place}: {problem.detail}") from None
        _require_commits(experiment, named, place)
        chosen = _with_definition(chosen, experiment, place)
    try:
        settings = parse_settings(chosen)
    except Invalid as invalid:
        raise ImportFailedError(f"experiment: {invalid.pointer}: {invalid.detail}") from None
    defined = {name: value for name, value in chosen.items() if before.get(name) != value}
    return ExperimentPlan(named=named, project_id=project_id, settings=settings, defined=defined)


def require_unregistered(connection: Connection, project_id: int, named: ExperimentsFile) -> None:
    """Holds that no experiment is registered."""
    for experiment in named.experiments:
        known = bound_experiment(
            connection,
            project_id,
            named.environment,
            treatment=experiment.treatment_commit.lower(),
            metric=experiment.target_metric,
        )
        if known is not None:
            raise ImportFailedError(
                f"already registered: {known} measures {experiment.target_metric!r} of"
                f" {experiment.treatment_commit}, and its history is closed; nothing was stored."
                f" See it by `deploy-reward explain {known}`"
            )


def spelled(names: Iterable[str], commit: str) -> list[str]:
    """Returns how events write a commit: as it is, shorter or longer."""
    sha = commit.lower()
    return [name for name in names if name.startswith(sha) or sha.startswith(name)]


def _whole(names: Sequence[str]) -> list[str]:
    """Returns the names that begin no other name: several, where they are of several commits."""
    return [
        name
        for name in names
        if not any(other != name and other.startswith(name) for other in names)
    ]


def _deploys(experiment: Experiment, environment: str, start: datetime) -> list[dict[str, object]]:
    """Returns the bodies of the two deploys, as `POST /v1/deploys` takes them."""
    control, at = experiment.control_commit, start - _CONTROL_BEFORE
    first: dict[str, object] = {
        "commit": {"sha": control},
        "deployed_at": time_text(at),
        "environment": environment,
    }
    second = {
        **first,
        "commit": {"sha": experiment.treatment_commit},
        "deployed_at": time_text(start),
        "diff": {"base_commit": control, "files": []},
    }
    if experiment.allocation is not None:
        second["allocation"] = experiment.allocation
    return [first, second]


def _registration(experiment: Experiment, *, deploy_id: str | None = None) -> Registration:
    """Returns the registration, held to the rules of `POST /v1/reward/register`."""
    target: object = experiment.target_metric
    if experiment.value_per_conversion is not None:
        target = {"name": target, "value_per_conversion": experiment.value_per_conversion}
    members = {
        "deploy_id": deploy_id,
        "control_commit": experiment.control_commit,
        "target_metric": target,
        "routes": experiment.routes,
        "guardrails": experiment.guardrails,
    }
    chosen = {name: value for name, value in members.items() if value is not None}
    return validated(_REGISTRATION, chosen).registration()


_EARLY = datetime.fromisoformat("2020-01-01T00:00:00Z")


def _require_commits(experiment: Experiment, named: ExperimentsFile, place: str) -> None:
    """Holds that an experiment's commits are those of arms, where arms are named by words."""
    if not named.commits:
        return
    for member in ("control_commit", "treatment_commit"):
        commit = getattr(experiment, member)
        if not spelled(map(str.lower, named.commits.values()), commit):
            raise ImportFailedError(
                f"{place}.{member} is {commit!r}, which is no value of [commits]:"
                f" {suggestion(commit, named.commits.values())}these are"
                f" {name_list(named.commits.values())}"
            )


def _with_definition(
    chosen: Mapping[str, Any], experiment: Experiment, place: str
) -> dict[str, Any]:
    """Returns a project's settings with an experiment's definitions of its target."""
    name = experiment.target_metric
    metric = {**chosen.get("metrics", {}).get(name, {})}
    for member, value, stored in _definition(experiment):
        said = f"{place}.{member} is {getattr(experiment, member)!r}"
        _define(metric, stored, value, place=said, path=f"metrics.{name}.")
    merged = dict(chosen)
    if metric:
        merged["metrics"] = {**chosen.get("metrics", {}), name: metric}
    grace, days = experiment.grace, experiment.horizon_days
    if grace is not None:
        seconds = length_in_seconds(grace)
        _define(merged, "grace_seconds", seconds, place=f"{place}.grace is {grace!r}")
    if days is not None:
        _define(merged, "horizon_days", days, place=f"{place}.horizon_days is {days}")
    return merged


def _define(
    settings: dict[str, object], name: str, value: object, *, place: str, path: str = ""
) -> None:
    """Sets a member of the settings, unless they say something else."""
    known = settings.get(name)
    if known not in (None, value):
        raise ImportFailedError(
            f"{place}, but the project's settings say {path}{name} = {known!r}: make them the same,"
            " or leave it out of --experiments"
        )
    settings[name] = value


def _definition(experiment: Experiment) -> Iterable[tuple[str, Any, str]]:
    """Yields an experiment's definitions of its target: its member, and the setting's."""
    currency = experiment.currency
    if experiment.window is not None:
        yield "window", length_in_seconds(experiment.window), "window_seconds"
    if experiment.sources is not None:
        yield "sources", experiment.sources, "sources"
    for member in ("kind", "better"):
        if getattr(experiment, member) is not None:
            yield member, getattr(experiment, member), member
    if currency is not None:
        yield "currency", currency, "currency"
    if experiment.cap is not None:
        digits = 0 if currency is None else minor_unit_digits(currency)
        yield "cap", float(experiment.cap * 10**digits), "cap"
