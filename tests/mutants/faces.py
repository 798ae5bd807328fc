"""Mutants of the faces: who may see what, and what a rollout does."""

from tests.mutants.mutant import Mutant, reword, swap

MUTANTS = [
    Mutant(
        breaks="a guardrail that got worse while the target is open takes the canary back",
        of="domain.evidence.breach.breach_action",
        edits=[swap("Action.REVISE if better else Action.ROLL_BACK", "Action.REVISE")],
        tests=[
            "tests/pipeline/changes/test_faces.py::test_a_breach_while_the_target_is_open_leads_every_face",
            "tests/pages/test_ci.py::test_a_canary_that_got_slower_is_taken_back_while_its_target_is_open[with_curl_and_jq]",
        ],
    ),
    Mutant(
        breaks="no evidence projects a date or a need where nothing is compared any more",
        of="domain.wording.situation.as_of_now",
        edits=[swap("is_awaited(current)", "True")],
        tests=[
            "tests/pipeline/changes/test_faces.py::test_a_deploy_is_said_by_each_face_before_the_next_look[step0-withdrawn]"
        ],
    ),
    Mutant(
        breaks="a store that may forget is refused at the start",
        of="api.server.process.serve",
        edits=[swap("None if _known_to_be_safe(settings) else settings", "None")],
        tests=[
            "tests/api/server/test_durability.py::test_a_weak_store_is_refused_in_one_line",
            "tests/api/server/test_durability.py::test_a_store_that_comes_back_weak_ends_the_server",
        ],
    ),
    Mutant(
        breaks="a stop closes no connection that is owed an answer",
        of="api.server.process.Server.shutdown",
        edits=[
            swap(
                'self.server_state.default_headers.append((b"connection", b"close"))',
                "[connection.transport.abort() for connection in self.server_state.connections]",
            )
        ],
        tests=[
            "tests/reliability/test_stops.py::test_a_stop_under_load_loses_nothing_and_answers_all_that_was_asked",
            "tests/api/server/test_workers.py::test_who_waits_to_be_let_in_when_the_server_is_stopped_is_answered",
        ],
    ),
    Mutant(
        breaks="another project's experiment is an unknown one",
        of="storage.experiments.experiments.close",
        edits=[
            swap(
                """
                (
                    select(experiments.c.closed_at)
                    .where(experiments.c.project_id == project_id, experiments.c.experiment_id == experiment_id)
                )
                """,
                """
                (
                    select(experiments.c.closed_at)
                    .where(experiments.c.experiment_id == experiment_id)
                )
                """,
            )
        ],
        tests=[
            "tests/api/routes/test_tenants.py::test_every_statement_of_the_api_is_of_one_project"
        ],
    ),
    Mutant(
        breaks="nobody on the network is the operator whose commands need no key",
        of="api.runtime.keyring.admitted",
        edits=[
            swap(
                "request.scope.get(OPERATOR)",
                "request.scope.get(OPERATOR) or request.headers.get(OPERATOR)",
            )
        ],
        tests=[
            "tests/cli/operations/test_own_process.py::test_no_request_of_the_network_is_an_operator_s"
        ],
    ),
    Mutant(
        breaks="an agent never sees the project key, though the service echoes it",
        of="mcp_server.reward_api.RewardApi._tool_error",
        edits=[swap("self.address.redacted(message)", "message")],
        tests=[
            "tests/mcp_server/test_stdio.py::test_whatever_the_service_does_each_call_is_answered_in_time_and_the_key_never_shown[100 calls]"
        ],
    ),
    Mutant(
        breaks="a problem repeats no value that was sent",
        of="api.wire.shape.validated",
        edits=[
            swap(
                "[body_fault(error, document) for error in errors]",
                "[Fault(at='', code='broken', detail=f'{document}, {errors}')]",
            )
        ],
        tests=[
            "tests/api/wire/test_redaction.py::test_what_a_request_says_is_heard_nowhere_but_where_it_is_meant_to_be"
        ],
    ),
    Mutant(
        breaks="another site's page cannot command Dagster",
        of="orchestration.guard.Guard.__call__",
        edits=[swap("self._objection(HTTPConnection(scope))", "None")],
        tests=[
            "tests/orchestration/test_guard.py::test_what_another_site_can_send_is_refused_in_one_line",
            "tests/browser/test_other_sites.py::test_a_page_of_another_site_changes_nothing",
        ],
    ),
    Mutant(
        breaks="a webhook connects to the address that was judged, not to one found anew",
        of="orchestration.outbound.receiver._posted",
        edits=[swap("target.copy_with(host=str(address))", "target")],
        tests=[
            "tests/orchestration/outbound/test_deliveries.py::test_a_name_is_resolved_once_and_the_address_that_was_judged_is_posted_to"
        ],
    ),
    Mutant(
        breaks="a breach sends a rollout back, whatever its policy",
        of="storage.releases.release_gate._against",
        edits=[swap("f'Go back: {breaches} is breached'", "None")],
        tests=[
            "tests/api/routes/test_release_gate.py::test_a_rollout_goes_on_back_or_neither_as_its_policy_says"
        ],
    ),
    Mutant(
        breaks="a hotfix, a second service or another commit's promotion takes no verdict off a canary",
        of="storage.releases.canary.commit_in_question",
        edits=[
            swap(
                "declared_canaries(connection, project_id, environment)",
                """
                [
                    Canary(commit=commit, share=0.5)
                    for commit in connection.execute(
                        select(deploys.c.commit_sha)
                        .where(deploys.c.project_id == project_id, deploys.c.environment == environment)
                        .order_by(deploys.c.deployed_at.desc(), deploys.c.recorded_at.desc())
                        .limit(1)
                    ).scalars()
                ]
                """,
            )
        ],
        tests=[
            "tests/api/routes/test_release_gate.py::test_without_a_commit_the_one_declared_canary_is_meant_and_no_other_deploy",
            "tests/api/routes/test_release_story.py::test_no_gate_goes_on_with_a_canary_that_is_to_be_rolled_back",
        ],
    ),
    Mutant(
        breaks="a freeze holds every gate",
        of="storage.releases.release_gate.judgment",
        edits=[
            swap(
                "freeze is not None",
                "freeze is not None and (answering is None or answering.contract['verdict'] != 'keep')",
            )
        ],
        tests=[
            "tests/api/routes/test_release_gate.py::test_while_frozen_every_gate_holds_and_none_asks_to_go_back"
        ],
    ),
    Mutant(
        breaks="CI promotes no older commit over a newer one",
        of="storage.views.verdict_list._SUPERSEDED_BY",
        edits=[reword("    WHERE later.share IS DISTINCT FROM 0", "    WHERE false")],
        tests=[
            "tests/pages/test_ci.py::test_a_canary_is_not_promoted_over_what_came_after_it_but_is_rolled_back"
        ],
    ),
    Mutant(
        breaks="an empty outcome is a no: every LEFT JOIN has one for each who did not buy",
        of="cli.imports.cells._MACROS",
        edits=[reword("WHEN is_empty(cell) THEN false", "WHEN is_empty(cell) THEN true")],
        tests=["tests/cli/imports/test_import.py::test_an_empty_outcome_is_a_no_in_every_format"],
    ),
    Mutant(
        breaks="an id of a file that has lost its digits is no id",
        of="cli.imports.cells._MACROS",
        edits=[reword("WHEN contains(cell, '+')", "WHEN false")],
        tests=[
            "tests/cli/imports/test_import.py::test_ids_that_have_lost_their_digits_end_the_import_by_their_column"
        ],
    ),
    Mutant(
        breaks="a unit of both arms is in neither until the map says which of its rows count",
        of="cli.imports.units.settle_arms",
        edits=[swap("both and counts is None", "False")],
        tests=[
            "tests/cli/imports/test_import.py::test_a_unit_of_both_arms_ends_the_import_unless_the_map_says_which_rows_count"
        ],
    ),
]
