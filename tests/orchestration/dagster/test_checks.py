"""The checks: each holds of an honest store, and sees the only thing that would contradict it."""

import re
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest

from orchestration.dagster import checks
from storage.upkeep.gauges import read_gauges


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The walked store, and what a check says of it after somebody tampered with it."""

    canary: Any
    instance: dg.DagsterInstance

    def outcome(self, check: dg.AssetChecksDefinition, *tampering: str) -> dg.AssetCheckEvaluation:
        self.canary.tamper(*tampering)
        result = dg.materialize(
            [check, dg.AssetSpec(check.check_key.asset_key)],
            selection=dg.AssetSelection.checks(check),
            instance=self.instance,
            resources={"store": self.canary.resource},
        )
        (evaluation,) = result.get_asset_check_evaluations()
        with self.canary.engine.begin() as connection:
            failed = read_gauges(connection).check_failed
        assert failed == {check.check_key.name: not evaluation.passed}
        # A failure says what to click or to type.
        cure = evaluation.description or ""
        assert evaluation.passed == (not re.search(r"`deploy-reward \w+|Materialize", cure))
        return evaluation


@pytest.fixture
def bench(walked, instance) -> Bench:
    return Bench(canary=walked, instance=instance)


@pytest.mark.requirement("transition.keep-without-breaches")
def test_a_keep_with_a_breach_is_seen(bench) -> None:
    result = bench.outcome(
        checks.no_keep_with_a_breach,
        "UPDATE verdicts SET contract = jsonb_set(contract::jsonb, '{{guardrail_breaches}}',"
        " '[\"error\"]')::json WHERE experiment_id = '{click}'",
    )

    assert not result.passed
    assert result.metadata["first"].value == [bench.canary.experiments["click"]]


@pytest.mark.parametrize(
    "tampering",
    [
        (
            "UPDATE verdicts SET contract = replace(contract::text, 'keep', 'rollback')::json,"
            " verdict = 'rollback' WHERE experiment_id = '{click}'"
        ),
        (
            "UPDATE verdicts SET evidence = (evidence::text || ' ')::json"
            " WHERE experiment_id = '{click}'"
        ),
        (  # The evidence does not support it.
            "UPDATE verdicts SET contract = jsonb_set(contract::jsonb, '{{lift}}', '0.5')::json"
            " WHERE experiment_id = '{click}';"
            "UPDATE evidence AS e SET contract = v.contract FROM verdicts AS v"
            " WHERE e.experiment_id = v.experiment_id AND v.experiment_id = '{click}'"
        ),
    ],
)
def test_a_decided_verdict_that_was_rewritten_is_seen(bench, tampering) -> None:
    assert not bench.outcome(checks.decided_verdicts_are_unchanged, tampering).passed


def test_a_running_p_that_rises_is_seen(bench) -> None:
    member = "jsonb_set(evidence::jsonb, '{{looks,0,p_running_min}}', '0.000001')"
    tampering = f"UPDATE verdicts SET evidence = {member}::json WHERE experiment_id = '{{view}}'"
    assert not bench.outcome(checks.running_p_never_rose, tampering).passed


@pytest.mark.parametrize(
    "tampering",
    [
        "DELETE FROM exposures WHERE unit = 's7' AND experiment_id = '{view}'",
        (
            "UPDATE verdicts SET evidence = jsonb_set(evidence::jsonb, '{{counts,in_cells}}',"
            " '3')::json WHERE experiment_id = '{view}'"
        ),
        (
            "INSERT INTO sightings SELECT experiment_id, 4, 'stranger',"
            " extract(epoch FROM starts_at) * 1000000"
            " FROM experiments WHERE experiment_id = '{view}'"
        ),
    ],
)
def test_a_unit_that_is_counted_nowhere_or_twice_is_seen(bench, tampering) -> None:
    assert not bench.outcome(checks.every_received_unit_is_accounted, tampering).passed


def test_a_vif_that_is_not_that_of_a_regression_is_seen(bench) -> None:
    result = bench.outcome(
        checks.vif_equals_that_of_a_regression,
        "UPDATE verdicts SET evidence = jsonb_set(evidence::jsonb, '{{gates,vif}}', '1.25')::json"
        " WHERE experiment_id = '{view}'",
    )

    assert not result.passed
    assert result.metadata["experiments"].value == 2
    assert bench.canary.experiments["view"] in result.metadata["unequal"].value


def test_a_session_that_the_pipeline_lost_is_seen_on_any_path_of_an_exposing_route(bench) -> None:
    result = bench.outcome(
        checks.every_received_unit_is_accounted,
        "INSERT INTO graphs (graph_id, project_id, digest, document, route_count, uploaded_at)"
        ' SELECT \'g\', project_id, \'g\', \'{{"routes": [{{"path": "/shop/[id]"}},'
        ' {{"path": "/help"}}]}}\', 2, now() FROM projects',
        "UPDATE experiments SET policy = policy || jsonb_build_object('graph_id', 'g', 'routes',"
        " jsonb_build_array('/shop/[id]')) WHERE experiment_id = '{view}'",
        # As though they had come within the last hour that was read.
        "INSERT INTO runtime_events (project_id, environment, event, session_id, occurred_at,"
        " received_at, commit_sha, route, trusted) SELECT project_id, environment, 'page_view',"
        " 'lost on ' || route, at - interval '20 minutes', at - interval '20 minutes', 'c0ffee0',"
        " route, false FROM experiments JOIN cursors USING (experiment_id)"
        " CROSS JOIN unnest(ARRAY['/shop/[id]', '/shop/17', '/shop/17/?a=1', '/help']) AS route"
        " WHERE experiment_id = '{view}' AND stage = 'exposures'",
    )

    assert not result.passed
    assert result.metadata["lost_sessions"].value[bench.canary.experiments["view"]] == 3


def test_events_that_come_after_the_grace_are_warned_of(bench) -> None:
    result = bench.outcome(
        checks.source_lag_is_under_the_grace,
        "INSERT INTO runtime_events (project_id, environment, event, session_id, occurred_at,"
        " received_at, trusted) SELECT project_id, environment, 'page_view', 'slow',"
        " now() - interval '10 minutes', now() - interval '1 minute', false"
        " FROM experiments WHERE experiment_id = '{view}'",
    )

    assert not result.passed
    assert result.severity is dg.AssetCheckSeverity.WARN
    assert "shop" in result.metadata["projects"].value
