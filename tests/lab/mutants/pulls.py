"""Lists the mutants of consumption over HTTP."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

CLIENTS = "streams/http/pulling/clients.py"
HANDING = "streams/http/pulling/handing_out.py"
OPENING = "streams/deliver/opening.py"
OUTCOMES = "streams/http/pulling/outcomes.py"
PULLING = "tests/http/test_pulling.py"
SERVERS = "tests/http/test_web_servers.py"
RECEIPTS = "streams/http/pulling/receipts.py"
ROUTES = "streams/http/routes/pull.py"
ACKS = "tests/http/test_acks.py"
POLLER = "streams/http/pulling/poller.py"
POLLER_TESTS = "tests/http/test_poller.py"

PULLS = [
    # The lease of a process, 15 s, for a client that sends no heartbeat.
    Mutant(
        "lease-of-a-process-for-a-client",
        CLIENTS,
        "    if not all(lasts for _pk, _deadline, lasts, _alone in found):\n",
        "    if False:\n",
        f"{PULLING}::test_a_client_that_works_longer_than_a_process_may_be_silent_keeps_its_delivery",
    ),
    Mutant(
        "pull-shortens-the-lease",
        CLIENTS,
        'lease_until=Greatest(F("lease_until"), UtcNow(lease))',
        "lease_until=UtcNow(lease)",
        f"{PULLING}::test_a_shorter_call_does_not_shorten_the_lease",
    ),
    Mutant(
        "pulls-wait-for-a-cursor-in-the-server",
        "streams/http/pulling/groups.py",
        "            made._idle, made.locks = known._idle, known.locks\n",
        "            made._idle = known._idle\n",
        f"{PULLING}::test_pulls_of_one_process_wait_for_a_cursor_in_the_process",
    ),
    # Nobody could tell a client that died with a message from one that was late.
    Mutant(
        "lease-outlasts-the-deadline-by-far",
        CLIENTS,
        "AT_LEAST, AT_MOST = 5.0, 10.0",
        "AT_LEAST, AT_MOST = 5.0, 20.0",
        f"{PULLING}::test_the_lease_ends_soon_after_the_deadline",
    ),
    Mutant(
        "receipt-without-a-token",
        "streams/http/pulling/receipts.py",
        "[0-9a-f]{32})",
        "[0-9a-f]*)",
        f"{PULLING}::test_a_receipt_without_a_token_takes_no_range_that_was_given_back",
    ),
    Mutant(
        "results-leave-offsets-out",
        OUTCOMES,
        "    if offsets != list(range(first, first + len(offsets))) or",
        "    if offsets[0] != first or",
        f"{PULLING}::test_results_that_are_no_prefix_are_refused_and_change_nothing",
    ),
    Mutant(
        "repeated-ack-is-refused",
        OUTCOMES,
        "    if _recorded(delivery, results, failures):\n",
        "    if False:\n",
        f"{PULLING}::test_an_ack_whose_answer_was_lost_may_be_repeated",
    ),
    Mutant(
        "ack-out-of-step-taken-for-a-repeat",
        OUTCOMES,
        "    return delivery.progress in ends and",
        "    return delivery.progress >= min(ends) and",
        f"{PULLING}::test_only_the_last_ack_may_be_repeated",
    ),
    Mutant(
        "exhausted-retry-handed-out",
        OPENING,
        "    if not backoff.exhausted(delivery.attempt - 1, limits.max_retries):\n",
        "    if True:\n",
        f"{PULLING}::test_what_has_no_attempt_left_is_dead_before_anything_is_handed_out",
    ),
    # Its id is in the receipt, too, and can be guessed.
    Mutant(
        "a-receipt-known-by-its-id",
        RECEIPTS,
        "known is None or known.delivery.token != token or",
        "known is None or",
        f"{ACKS}::test_a_wrong_token_settles_nothing_that_this_process_has_handed_out",
    ),
    Mutant(
        "what-a-process-has-handed-out-is-for-all",
        ROUTES,
        "    _needs_group(request, delivery)\n    settled",
        "    settled",
        f"{ACKS}::test_acks_may_be_of_another_group_that_the_token_may_consume",
    ),
    Mutant(
        "one-ack-stops-the-others",
        ROUTES,
        "    except (Problem, StreamsError) as error:\n",
        "    except Problem as error:\n",
        f"{ACKS}::test_what_is_wrong_with_one_ack_stops_no_other",
    ),
    Mutant(
        "a-wrong-pull-records-its-acks",
        ROUTES,
        """    timeout = outcomes.checked_timeout(asked.timeout, limits) if limits else None
    acking.record()
""",
        """    acking.record()
    timeout = outcomes.checked_timeout(asked.timeout, limits) if limits else None
""",
        f"{ACKS}::test_a_wrong_pull_records_nothing",
    ),
    Mutant(
        "nobody-hears-that-a-client-goes",
        "streams/http/hot.py",
        "            task.cancel()\n",
        "            pass\n",
        "tests/http/test_hot.py::test_a_client_that_goes_is_held_no_longer",
    ),
    Mutant(
        "more-beside-what-runs-alone",
        CLIENTS,
        "    if are_new and any(alone for *_delivery, alone in found):\n",
        "    if False:\n",
        f"{PULLING}::test_a_message_with_which_two_clients_died_is_the_only_one_of_its_client",
    ),
    Mutant(
        "retry-without-a-start",
        HANDING,
        "            if delivery.counts_starts(is_last=limits.one_call) and",
        "            if False and",
        f"{PULLING}::test_a_retry_spends_its_attempt_when_it_is_handed_out",
    ),
    Mutant(
        "undo-takes-from-a-repeat",
        HANDING,
        "                release(handed.delivery, thread=THREAD)\n",
        "                release(handed.delivery)\n",
        "tests/http/test_repeated_pulls.py::test_the_undo_of_a_request_leaves_what_its_repeat_got",
    ),
    Mutant(
        "claim-of-a-gone-client-kept",
        "streams/http/pulling/holding.py",
        "            await undo(await task)\n",
        "            await task\n",
        f"{SERVERS}::test_what_is_claimed_for_a_client_that_is_gone_is_given_back",
        "mysql",
    ),
    # Who claims before the message has its offset would wait for another message.
    Mutant(
        "wakes-only-who-waited-before-the-look",
        POLLER,
        "woken=self._wake(",
        "woken=bool(groups) and self._wake(",
        f"{POLLER_TESTS}::test_who_comes_during_a_look_is_woken_by_it",
    ),
    Mutant(
        "wake-up-between-two-pulls-lost",
        "streams/http/routes/pull.py",
        "    waiting(using).concern(topic)\n",
        "",
        f"{POLLER_TESTS}::test_what_is_sent_between_two_pulls_concerns_this_process",
    ),
    Mutant(
        "purge-during-a-read-unseen",
        "streams/http/pulling/log.py",
        "    if len(messages) < end - start:\n",
        "    if False:\n",
        "tests/http/test_log_read.py::test_a_purge_during_the_read_is_said",
    ),
]
