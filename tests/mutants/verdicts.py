"""Mutants of the pipeline and the statistics: what a verdict says."""

from tests.mutants.mutant import Mutant, drop, reword, swap

MUTANTS = [
    Mutant(
        breaks="an event that names no build is no arrival of another build",
        of="stats.counts.arrivals.Arrivals.counting_names",
        edits=[swap("ONE_NAMED_IN * named >= of", "named >= 0")],
        tests=[
            "tests/pipeline/scenarios/test_shortfall.py::test_events_that_name_no_build_are_no_arrivals_of_another[None]"
        ],
    ),
    Mutant(
        breaks="the slope that a mean is adjusted by has seen no unit of its own block",
        of="stats.counts.adjustment.slopes",
        edits=[
            swap("np.searchsorted(closes, begin, side='right')", "np.arange(1, closes.size + 1)")
        ],
        tests=[
            "tests/stats/counts/test_adjustment.py::test_the_sums_are_those_of_the_specification"
        ],
    ),
    Mutant(
        breaks="a ratio's variance is the largest of the arms' and of both together",
        of="stats.counts.ratio.ratio_totals",
        edits=[swap("np.maximum(np.maximum(pooled, own), of_both * per_unit)", "pooled")],
        tests=[
            "tests/stats/counts/test_ratio.py::test_the_test_of_a_ratio_is_that_of_the_specification[3.0-0.02]"
        ],
    ),
    Mutant(
        breaks="no registration changes what users have: a promoted canary is the next one's control",
        of="domain.lineage.serving.Serving._declared_standing",
        edits=[
            swap(
                "step.allocation == 1",
                "step.allocation == 1 and step.commit not in self._treatments",
            )
        ],
        tests=[
            "tests/pipeline/changes/test_releases.py::test_4_what_was_promoted_is_the_next_base_with_a_verdict_or_without[True]"
        ],
    ),
    Mutant(
        breaks="a commit that is registered again while its experiment is open is that experiment",
        of="storage.experiments.experiments._open_experiment",
        edits=[swap("same = or_(same, own)", "same = same")],
        tests=[
            "tests/pipeline/changes/test_releases.py::test_a_canary_that_is_registered_again_after_its_base_went_is_the_same_experiment"
        ],
    ),
    Mutant(
        breaks="an event's id makes its second delivery the same event",
        of="storage.pipeline.steps.EVENT_KEY",
        edits=[
            reword(
                "coalesce(e.event_id, concat(e.event, ' ', e.occurred, ' ', coalesce(concat(e.value, ''), '')))",
                "concat(e.received, '')",
            )
        ],
        tests=["tests/reliability/test_kills.py::test_what_is_sent_again_counts_once"],
    ),
    Mutant(
        breaks="a verdict and its evidence are published in one transaction",
        of="storage.verdicts.publication.publish_verdicts",
        edits=[
            swap(
                "rows = connection.execute(_PUBLISH, {'ids': ids}).all()",
                """
                connection.execute(text(
                    'UPDATE verdicts AS v SET contract = e.contract FROM evidence AS e'
                    ' WHERE e.experiment_id = v.experiment_id AND NOT v.decided'
                ))
                connection.exec_driver_sql('COMMIT')
                rows = connection.execute(_PUBLISH, {'ids': ids}).all()
                """,
            )
        ],
        tests=[
            "tests/reliability/test_orchestrator_kills.py::test_a_tick_that_is_killed_anywhere_is_healed_by_the_next"
        ],
    ),
    Mutant(
        breaks="a candidate is decided only at a look at which the test holds",
        of="stats.decision.ruling._rules",
        edits=[
            swap(
                "crossed & (worse | breached | (ready & counted)) & (waiting | ~ends)",
                "(crossed | waiting) & (worse | breached | (ready & counted)) & (waiting | ~ends)",
            )
        ],
        tests=[
            "tests/stats/guardrails/test_guardrail.py::test_a_candidate_is_kept_only_at_a_look_at_which_the_test_holds"
        ],
    ),
    Mutant(
        breaks="analysis blocks are joined in each stratum of its own",
        of="stats.looks.block._Units.before",
        edits=[
            swap(
                """
                came[self.stratum[own] - first, self.block[own] + 1] = self.count[own]
                return np.cumsum(came, axis=1, out=came)
                """,
                "return came + self.total",
            )
        ],
        tests=[
            "tests/calibration/test_blocks.py::test_many_thin_strata_cost_hardly_any_information",
            "tests/stats/looks/test_block.py::test_analysis_blocks_are_those_of_a_second_reading_of_the_rule",
        ],
    ),
    Mutant(
        breaks="a value is clipped on both sides",
        of="storage.pipeline.steps.NEW_AMOUNTS",
        edits=[
            reword(
                "            greatest(least(value, cap), -cap) AS value",
                "            least(value, cap) AS value",
            )
        ],
        tests=[
            "tests/pipeline/scenarios/test_readings.py::test_a_value_is_clipped_on_both_sides_and_a_named_cap_is_kept"
        ],
    ),
    Mutant(
        breaks="a mean counts the payments of its currency alone, and those that it leaves out by arm",
        of="storage.pipeline.steps.PAID",
        edits=[reword("WHEN m.currency = r.currency OR", "WHEN r.currency <> '' OR")],
        tests=[
            "tests/pipeline/gates/test_left_out.py::test_outcomes_that_both_arms_leave_out_alike_are_counted_and_hold_nothing_back",
            "tests/pipeline/engines/test_engines.py::test_each_engine_computes_of_a_world_what_the_specification_says[0]",
        ],
    ),
    Mutant(
        breaks="payments that are left out hold back the answer that they explain",
        of="stats.gates.companions.companion.CompanionGate.explains",
        edits=[swap("score * target < 0", "score * target > 0")],
        tests=[
            "tests/stats/gates/test_companion.py::test_it_is_not_sticky_and_asks_for_the_cells_of_the_same_look"
        ],
    ),
    Mutant(
        breaks="events before an exposure are read again once the exposure is known",
        of="storage.pipeline.steps._read_outcome",
        edits=[reword(" - m.attribution_before - ", " - ")],
        tests=[
            "tests/pipeline/gates/test_before_exposure.py::test_orders_before_the_exposure_hold_the_answer_back_that_they_explain"
        ],
    ),
    Mutant(
        breaks="an experiment counts the sample that it froze, whatever else is stored",
        of="storage.pipeline.steps.SEEN",
        edits=[swap("IN_SAMPLE", "'true'")],
        tests=[
            "tests/pipeline/scenarios/test_sampling.py::test_an_experiment_counts_its_sample_of_what_is_stored"
        ],
    ),
    Mutant(
        breaks="of a day that is computed in parts, each unit is counted in one of them",
        of="storage.pipeline.steps.SEEN",
        edits=[swap("IN_PART", "'true'")],
        tests=[
            "tests/pipeline/engines/test_engines.py::test_a_day_that_is_computed_in_parts_of_its_units_has_the_same_rows"
        ],
    ),
    Mutant(
        breaks="where signatures are asked for, an event that nobody vouches for exposes no session",
        of="storage.pipeline.steps.SEEN",
        edits=[swap("_VOUCHED", "'true'")],
        tests=[
            "tests/pipeline/scenarios/test_poisoning.py::test_signed_assignments_answer_an_attack_as_the_page_says[sessions of treatment that convert-10]",
            "tests/cli/operations/test_unvouched_claims.py::test_no_command_and_no_signer_does_with_another_s_data_what_an_unvouched_claim_says",
        ],
    ),
    Mutant(
        breaks="nobody signs for a session that the public key names",
        of="api.adapters.remote_evaluation._token",
        edits=[swap("caller.kind is not KeyKind.WRITE", "False")],
        tests=[
            "tests/pipeline/scenarios/test_poisoning.py::test_remote_evaluation_signs_for_no_session_that_nobody_served",
            "tests/api/openfeature/test_evaluation.py::test_the_setting_says_to_which_key_arms_are_handed_out_and_the_write_key_s_are_signed",
            "tests/cli/operations/test_unvouched_claims.py::test_no_command_and_no_signer_does_with_another_s_data_what_an_unvouched_claim_says",
        ],
    ),
    Mutant(
        breaks="a block waits for the grace before it closes",
        of="storage.pipeline.steps._CLOSED",
        edits=[reword(" + s.grace)", ")")],
        tests=[
            "tests/pipeline/engines/test_engines.py::test_each_engine_computes_of_a_world_what_the_specification_says[0]"
        ],
    ),
    Mutant(
        breaks="of events of one moment the first one by commit, route, arm and stratum exposes its unit",
        of="storage.pipeline.steps.SEEN",
        edits=[reword(" + spot END) AS first_exposure,", " END) AS first_exposure,")],
        tests=[
            "tests/pipeline/engines/test_engines.py::test_each_engine_computes_of_a_world_what_the_specification_says[0]"
        ],
    ),
    Mutant(
        breaks="a binding reads the past before it takes the lock of all who write the log",
        of="storage.schema.past_log.PastLog.bound",
        edits=[drop("bind(self.until)"), drop("self._is_read = True")],
        tests=[
            "tests/storage/pipeline/test_binding.py::test_a_neighbour_is_answered_while_a_project_reads_its_past[register]"
        ],
    ),
    Mutant(
        breaks="each place is registered in a transaction of its own",
        of="storage.places.queue._Queue.advance",
        edits=[
            swap(
                """any(
                    self._tried(row, refused, kind, **given)
                    for row, kind, given in self._turns(open_rows)
                    if only in (None, row.place_id)
                )""",
                """any([
                    self._tried(row, refused, kind, **given)
                    for row, kind, given in self._turns(open_rows)
                    if only in (None, row.place_id)
                ])""",
            )
        ],
        tests=["tests/storage/pipeline/test_binding.py::test_places_are_registered_one_by_one"],
    ),
    Mutant(
        breaks="a policy is frozen from vouched events where these are enough",
        of="storage.experiments.readings.PastEvents.vouched_first",
        edits=[swap("number == 0", "False")],
        tests=[
            "tests/pipeline/scenarios/test_readings.py::test_where_vouched_events_are_enough_a_stranger_moves_no_member"
        ],
    ),
    Mutant(
        breaks="a stranger's users are not the unit of sessions that name none",
        of="domain.checklist.setup.ReturningVisitors.unit",
        edits=[swap("2 * self.named >= self.sessions", "True")],
        tests=[
            "tests/pipeline/scenarios/test_readings.py::test_a_stranger_s_users_are_not_the_unit_of_sessions_that_name_none"
        ],
    ),
    Mutant(
        breaks="what is chosen after a look counts no units from before it",
        of="storage.experiments.start._is_chosen_late",
        edits=[swap("binding.bound_at <= closed", "binding.bound_at >= closed")],
        tests=["tests/pipeline/scenarios/test_start.py::test_the_page_says_why_no_past_counts"],
    ),
    Mutant(
        breaks="a stage works in a savepoint, and finds the one experiment that breaks it",
        of="orchestration.pipeline.batch._tried",
        edits=[
            swap(
                """
                if is_passing(error) or (seconds is None and is_timeout(error)):
                    raise
                """,
                "raise",
            )
        ],
        tests=[
            "tests/reliability/test_isolation.py::test_what_one_experiment_breaks_keeps_no_other_from_its_verdict_of_the_same_tick"
        ],
    ),
    Mutant(
        breaks="what is published follows from the log alone",
        of="orchestration.pipeline.document.evidence_document",
        edits=[
            swap(
                "said.sentence",
                "said.sentence + str(__import__('time').time())",
            )
        ],
        tests=[
            "tests/reliability/test_restores.py::test_everything_derived_comes_back_to_the_byte"
        ],
    ),
    Mutant(
        breaks="errors that triple from a thousandth are no accepted harm",
        of="stats.guardrails.guardrail._margins",
        edits=[
            swap("np.minimum(LARGEST_FLOOR, np.maximum(rate, SMALLEST_FLOOR))", "LARGEST_FLOOR")
        ],
        tests=[
            "tests/stats/guardrails/test_guardrail.py::test_the_margin_is_as_registered_or_by_the_rate_and_no_less_than_a_tenth_of_a_point"
        ],
    ),
    Mutant(
        breaks="an audit compares what is served, not what it has just computed",
        of="storage.pipeline.comparison._differing",
        edits=[swap("WITHIN[table.name].format(schema=schema)", "'false'")],
        tests=["tests/cli/operations/test_audit.py::test_a_tampered_row_of_each_stage_is_named"],
    ),
    Mutant(
        breaks="a withdrawn deploy changes nothing that a verdict has read",
        of="storage.verdicts.evidence._deploys",
        edits=[
            swap(
                "deploy.withdrawn_at is None or deploy.withdrawn_at > row.bound_at",
                "deploy.withdrawn_at is None",
            )
        ],
        tests=[
            "tests/cli/changes/test_withdraw.py::test_a_withdrawn_deploy_changes_nothing_that_a_verdict_has_read"
        ],
    ),
    Mutant(
        breaks="a flag that depends on the change splits the strata in every block before, too",
        of="stats.looks.stratification._stages",
        edits=[
            swap("dependent is not None and splitting.flags", "False"),
        ],
        tests=[
            "tests/stats/looks/test_splits.py::test_a_flag_that_splits_does_so_in_every_block_that_went_before"
        ],
    ),
    Mutant(
        breaks="whoever catches up misses no cell that closes later than its exposures",
        of="storage.pipeline.catching_up._stored_to",
        edits=[
            swap(
                "min((cursors.get((own, stage), EARLIEST) for stage in stages))",
                "cursors.get((own, 'exposures'), EARLIEST)",
            )
        ],
        tests=[
            "tests/pipeline/engines/test_engines.py::test_each_engine_computes_of_a_world_what_the_specification_says[0]"
        ],
    ),
    Mutant(
        breaks="a separate reading reads its own tables, whatever its connection has prepared before",
        of="storage.upkeep.reading._connected",
        edits=[drop("driver.prepare_threshold = None")],
        tests=[
            "tests/pipeline/consistency/test_purity.py::test_an_evaluation_as_of_a_time_ignores_what_its_connection_read_before"
        ],
    ),
    Mutant(
        breaks="an event is of its commit however much of the id it writes, and of no other",
        of="domain.lineage.commit_id.CommitIds.meant",
        edits=[swap("written.startswith(known.id)", "False")],
        tests=[
            "tests/pipeline/changes/test_commit_ids.py::test_deploys_and_events_of_other_lengths_are_of_one_commit"
        ],
    ),
    Mutant(
        breaks="an id that becomes known later means for closed blocks what it meant before",
        of="domain.lineage.commit_id.CommitIds.meant",
        edits=[swap("known.recorded_at <= known_at", "True")],
        tests=[
            "tests/pipeline/changes/test_commit_ids.py::test_knowledge_that_comes_after_a_block_closed_leaves_it_as_it_was"
        ],
    ),
    Mutant(
        breaks="a day that is known to differ from the log decides nothing",
        of="orchestration.dagster.cells.unequal_experiments",
        edits=[swap("set[str]() if swapped else _differing(comparison)", "set[str]()")],
        tests=[
            "tests/orchestration/dagster/test_days.py::test_an_experiment_with_a_day_unlike_the_log_decides_once_that_is_cured"
        ],
    ),
    Mutant(
        breaks="a run whose process is gone is failed",
        of="orchestration.dagster.upkeep.dead_runs.dead_runs",
        edits=[swap("free.intersection(json.loads(context.cursor or '[]'))", "set()")],
        tests=[
            "tests/orchestration/test_dead_runs.py::test_a_run_whose_process_is_killed_fails_within_two_ticks_and_a_living_one_goes_on"
        ],
    ),
]
