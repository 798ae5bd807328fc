"""Mutants of the log: what is acknowledged, paid or forgotten."""

from tests.mutants.mutant import Mutant, drop, reword, swap

MUTANTS = [
    Mutant(
        breaks="an event is acknowledged once it is committed, not once it waits to be",
        of="storage.log.events.EventWriter.append",
        edits=[
            swap(
                "return await self._batcher.submit(lines.text, size=len(lines.text))",
                """
                self._batcher.submit(lines.text, size=len(lines.text))
                return self.now()
                """,
            )
        ],
        tests=[
            "tests/reliability/test_kills.py::test_a_kill_of_the_service_loses_nothing_that_was_acknowledged"
        ],
    ),
    Mutant(
        breaks="a commit that failed is no acknowledgement",
        of="storage.postgres.batching.Batcher._answer",
        edits=[
            swap(
                "_fail(waiting, failure)",
                """
                from datetime import UTC, datetime
                _settle(waiting, [datetime.now(UTC)] * len(waiting))
                """,
            )
        ],
        tests=[
            "tests/reliability/test_store_restarts.py::test_a_store_that_dies_and_comes_back_loses_nothing_that_was_acknowledged"
        ],
    ),
    Mutant(
        breaks="committed means on disk",
        of="storage.log.events.EventWriter._commit",
        edits=[
            swap(
                "exchange.begun(_APPEND)",
                """
                exchange.begun(
                    _APPEND.replace(
                        b"AS locked",
                        b"AS locked WHERE set_config('synchronous_commit', 'off', true) = 'off'",
                    )
                )
                """,
            )
        ],
        tests=[
            "tests/reliability/test_store_restarts.py::test_a_store_that_dies_and_comes_back_loses_nothing_that_was_acknowledged"
        ],
    ),
    Mutant(
        breaks="an erasure waits for a rebuild, which would bring the person back",
        of="storage.upkeep.forgetting.forget_person",
        edits=[drop("await_rebuild(connection)")],
        tests=[
            "tests/orchestration/dagster/test_rebuild.py::test_whoever_is_forgotten_during_a_rebuild_does_not_come_back_by_it"
        ],
    ),
    Mutant(
        breaks="who is named with the public key is tied to nobody by it",
        of="storage.upkeep.forgetting._ties_of",
        edits=[swap("row.vouched", "True")],
        tests=[
            "tests/pipeline/consistency/test_forget.py::test_a_stranger_s_chain_of_references_erases_nobody",
            "tests/pipeline/consistency/test_forget.py::test_a_stranger_s_references_do_not_keep_a_session_from_being_erased",
            "tests/cli/operations/test_unvouched_claims.py::test_no_command_and_no_signer_does_with_another_s_data_what_an_unvouched_claim_says",
        ],
    ),
    Mutant(
        breaks="a session is nobody's who is named in it after another",
        of="storage.upkeep.forgetting._NamedUsers.claim",
        edits=[swap("self.claimed[0] in users", "not users.isdisjoint(self.claimed)")],
        tests=[
            "tests/pipeline/consistency/test_forget.py::test_who_names_himself_in_another_s_session_later_erases_nothing_of_it[public]"
        ],
    ),
    Mutant(
        breaks="what the write key sent of a session stays where the public key alone ties it to a person",
        of="storage.upkeep.forgetting._ERASE_EVENTS",
        edits=[reword(" AND NOT e.trusted", "")],
        tests=[
            "tests/pipeline/consistency/test_forget.py::test_of_a_session_that_claims_a_user_the_public_key_s_events_go_alone"
        ],
    ),
    Mutant(
        breaks="the revenue of who is only claimed by a session that goes counts as it did",
        of="storage.upkeep.forgetting._forget",
        edits=[drop("if person.others:\n    _rename(connection, bound)")],
        tests=[
            "tests/pipeline/consistency/test_forget.py::test_the_revenue_of_whom_a_session_only_claims_stays_and_counts_as_it_did"
        ],
    ),
    Mutant(
        breaks="a file is on the disk before it is listed",
        of="storage.lake.lake.FolderLake.writing",
        edits=[drop("_sync(unfinished)")],
        tests=[
            "tests/storage/log/test_durability.py::test_a_file_and_its_name_are_on_the_disk_before_it_is_listed"
        ],
    ),
    Mutant(
        breaks="no file is deleted while somebody reads who may have its name",
        of="storage.lake.removal.delete_unlisted",
        edits=[drop("claim_files(connection)")],
        tests=[
            "tests/storage/log/test_durability.py::test_a_file_that_is_listed_no_longer_stays_until_its_readers_have_ended"
        ],
    ),
    Mutant(
        breaks="a day that an open experiment reads is kept",
        of="storage.upkeep.retention._OLD_DAYS",
        edits=[
            reword("      WHERE x.is_read AND x.reads_from < kept.day + 1", "      WHERE false")
        ],
        tests=[
            "tests/orchestration/dagster/test_retention.py::test_what_an_open_experiment_reads_stays",
            "tests/orchestration/dagster/test_retention.py::test_what_a_waiting_experiment_may_come_to_read_stays",
        ],
    ),
    Mutant(
        breaks="no day is dropped between a replay's look and its write",
        of="storage.upkeep.retention.drop_day",
        edits=[drop("claim_past_days(connection)")],
        tests=[
            "tests/orchestration/dagster/test_retention.py::test_a_day_that_is_being_replayed_into_is_not_dropped_under_the_writer"
        ],
    ),
    Mutant(
        breaks="a day leaves PostgreSQL only when each of its files was read back",
        of="storage.lake.hot_days.move_old_days",
        edits=[swap("_wrong_files(engine, lake, day)", "False")],
        tests=[
            "tests/storage/log/test_hot_days.py::test_a_day_stays_whose_file_cannot_be_read_back"
        ],
    ),
    Mutant(
        breaks="who was forgotten is left out of every file at once",
        of="storage.pipeline.log_relations.attach_log",
        edits=[swap("not_erased_after(last) if last < newest else ''", "''")],
        tests=[
            "tests/storage/log/test_erasures.py::test_nobody_reads_from_a_file_who_was_forgotten"
        ],
    ),
    Mutant(
        breaks="an erasure ends only when no file holds anything of that person",
        of="storage.lake.erasures._rewrite",
        edits=[swap("rows < file.rows", "file.part > 0 and rows < file.rows")],
        tests=[
            "tests/storage/log/test_erasures.py::test_the_nights_rewriting_leaves_no_trace_in_any_file"
        ],
    ),
    Mutant(
        breaks="a file of the lake is read only where it is as it is listed",
        of="storage.lake.reader.SealedLog.rows",
        edits=[swap("wrong_files(self.lake, listed)", "{}")],
        tests=[
            "tests/storage/log/test_wrong_files.py::test_an_hour_whose_file_is_wrong_is_read_from_postgresql_while_that_has_it",
            "tests/storage/log/test_wrong_files.py::test_a_wrong_file_that_alone_holds_its_events_is_named_and_every_other_hour_read",
            "tests/reliability/test_isolation.py::test_a_wrong_file_keeps_no_other_experiment_from_its_verdict_of_the_same_tick",
        ],
    ),
    Mutant(
        breaks="no file is written anew from one that is not as it is listed",
        of="storage.lake.erasures._rewrite",
        edits=[swap("verified(lake, file)", "lake.reading(file.name)")],
        tests=[
            "tests/storage/log/test_wrong_files.py::test_a_wrong_file_of_a_hot_day_is_written_anew_from_postgresql_without_the_person",
            "tests/storage/log/test_wrong_files.py::test_a_wrong_file_that_alone_holds_its_events_stops_nobody_elses_erasure",
        ],
    ),
    Mutant(
        breaks="no command touches a store of another version: a newer one, or an older one",
        of="storage.schema.migrate.refuse_unknown_version",
        edits=[swap("stored is None or stored == VERSION", "True")],
        tests=[
            "tests/cli/operations/test_store_version.py::test_no_command_touches_a_store_of_another_version",
        ],
    ),
    Mutant(
        breaks="whether a revenue event is new is decided by the table's key, not by a look beforehand",
        of="storage.log.revenue.record_revenue",
        edits=[
            swap(
                """
                new = set(
                    connection.execute(
                        insert(revenue_events)
                        .values(values)
                        .on_conflict_do_nothing()
                        .returning(revenue_events.c.idempotency_key)
                    ).scalars()
                )
                """,
                """
                known = set(connection.execute(select(revenue_events.c.idempotency_key)).scalars())
                values = [value for value in values if value['idempotency_key'] not in known]
                new = set() if not values else set(
                    connection.execute(
                        insert(revenue_events).values(values).returning(revenue_events.c.idempotency_key)
                    ).scalars()
                )
                """,
            )
        ],
        tests=["tests/reliability/test_races.py::test_one_key_from_fifty_clients_is_accepted_once"],
    ),
    Mutant(
        breaks="a key used before with another payload is a conflict",
        of="storage.log.revenue.record_revenue",
        edits=[swap("_require_same_payloads(connection, project_id, events)", "[]")],
        tests=[
            "tests/reliability/test_races.py::test_of_two_payloads_under_one_key_one_is_refused_to_all"
        ],
    ),
    Mutant(
        breaks="a word for nothing is no name and no id, however it is written",
        of="domain.absence.is_nothing",
        edits=[swap("name.strip().lower() in _NAMELESS", "name in _NAMELESS")],
        tests=[
            "tests/api/wire/test_absence.py::test_a_word_for_nothing_is_refused_by_name_or_unknown",
            "tests/api/wire/test_absence.py::test_a_word_for_nothing_as_a_parameter_is_refused_by_name",
        ],
    ),
    Mutant(
        breaks="zeros alone are no commit, however many",
        of="domain.absence.is_null",
        edits=[swap('not commit.strip("0")', 'commit == "0" * 40')],
        tests=[
            "tests/api/wire/test_absence.py::test_a_word_for_nothing_is_refused_by_name_or_unknown"
        ],
    ),
    Mutant(
        breaks="the values of a body are counted before any of them is built",
        of="api.wire.body.read_body",
        edits=[swap("values + names > most_values(limit)", "False")],
        tests=[
            "tests/reliability/test_cost.py::test_a_body_of_nothing_but_values_is_refused_before_they_are_built"
        ],
    ),
    Mutant(
        breaks="a name that a write key sends waits for none that a public key invents",
        of="api.runtime.admissions.Admissions.took",
        edits=[swap("trusted or name in sources", "False")],
        tests=[
            "tests/api/routes/test_runtime_events.py::test_names_that_a_public_key_invents_keep_no_other_waiting_and_are_bounded"
        ],
    ),
    Mutant(
        breaks="a store takes no other secret than its own",
        of="storage.tenants.secret.bind_secret",
        edits=[swap("bound is None or hmac.compare_digest(bound, own)", "True")],
        tests=[
            "tests/cli/processes/test_secret.py::test_a_secret_that_is_not_the_store_s_is_refused_by_whoever_reads_it"
        ],
    ),
    Mutant(
        breaks="the cut of a log leaves what is free to the store",
        of="storage.postgres.child_process.cut_log",
        edits=[
            swap(
                "shutil.disk_usage(path.parent).free < _ROOM_FOR_COPIES * path.stat().st_size",
                "False",
            )
        ],
        tests=[
            "tests/cli/processes/test_supervisor.py::test_a_long_log_is_cut_and_copied_only_where_the_disk_has_room"
        ],
    ),
    Mutant(
        breaks="a line that the terminal does not take ends no child",
        of="cli.processes.supervisor.Supervisor._report",
        edits=[swap("suppress(OSError)", "suppress()")],
        tests=[
            "tests/cli/processes/test_supervisor.py::test_nothing_that_fails_in_tending_a_child_ends_the_others"
        ],
    ),
    Mutant(
        breaks="the elements of a large part of an export are counted on the wire",
        of="api.adapters.otlp.decoding._WireExport.built",
        edits=[swap("len(part) > _LARGE_PART", "False")],
        tests=[
            "tests/reliability/test_cost.py::test_a_body_of_nothing_but_values_is_refused_before_they_are_built"
        ],
    ),
    Mutant(
        breaks="the bytes that wait in a process are bounded, and one project leaves room for others",
        of="api.wire.fair_queue.FairQueue.hold",
        edits=[swap("project.held + size > _CAPACITY_BYTES - self._held - size", "False")],
        tests=[
            "tests/api/server/test_back_pressure.py::test_what_cannot_wait_is_refused_and_what_waits_is_stored"
        ],
    ),
    Mutant(
        breaks="a project that floods waits for its own requests, and a neighbour for none of them",
        of="api.wire.fair_queue.FairQueue.may_go_on",
        edits=[swap("not project.waiting and self._has_room(project, size)", "True")],
        tests=[
            "tests/api/wire/test_fair_queue.py::test_a_flood_waits_for_its_own_and_a_neighbour_for_none_of_it"
        ],
    ),
]
