"""Lists the mutants of the HTTP API: who is let in, to what, and what is committed."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

ACCESS = "streams/http/access.py"
APP = "streams/http/app.py"
PRODUCE = "streams/http/routes/produce.py"
THREADS = "streams/http/threads.py"
TOKEN = "streams/models/token.py"
SECURITY = "tests/http/outside/test_security.py"
TOKENS = "tests/http/test_tokens.py"
PROJECTS = "tests/http/test_projects.py"
SENDING = "tests/http/test_produce.py"

HTTP = [
    Mutant(
        "a-held-pull-is-served-though-its-token-was-revoked",
        "streams/http/routes/pull.py",
        "        if hold:\n            await identified_again",
        "        if False:\n            await identified_again",
        "tests/http/test_poller.py"
        "::test_a_held_request_whose_token_is_revoked_meanwhile_gets_nothing",
    ),
    Mutant(
        "a-repeated-deletion-closes-a-newer-topic",
        "streams/http/routes/deletion.py",
        "    if closed is not None and closed[0] != row.pk:\n",
        "    if False:\n",
        "tests/http/test_operate.py"
        "::test_a_forced_deletion_that_is_repeated_leaves_another_topic_of_its_name",
    ),
    # An id of one database would be settled on another.
    Mutant(
        "receipt-without-its-database",
        "streams/http/pulling/receipts.py",
        "    using = (match and match[3]) or settings().DATABASE\n",
        "    using = settings().DATABASE\n",
        "tests/http/test_shards.py::test_messages_are_pulled_acknowledged_and_read_where_they_are",
    ),
    Mutant(
        "a-token-known-by-its-prefix",
        ACCESS,
        "known[1] if known and hmac.compare_digest(known[0], hash_) else None",
        "known[1] if known else None",
        f"{SECURITY}::test_nobody_is_let_in_without_a_valid_token",
    ),
    Mutant(
        "a-token-believed-for-ever",
        "streams/database/remembered.py",
        "return value if time.monotonic() < until else None",
        "return value",
        f"{TOKENS}::test_a_revoked_token_is_refused_within_five_seconds",
    ),
    Mutant(
        "a-body-before-its-token",
        "streams/http/app.py",
        "            await early(request)\n",
        "            pass\n",
        "tests/http/test_web_servers.py"
        "::test_a_body_is_not_read_before_its_token_and_its_size_are_checked",
    ),
    Mutant(
        "chunks-without-a-limit",
        "streams/http/asgi.py",
        "        if received > most:\n",
        "        if False:\n",
        "tests/http/test_web_servers.py::test_a_body_in_chunks_is_taken_up_to_the_limit",
    ),
    Mutant(
        "a-claim-without-an-answer-is-kept",
        "streams/http/routes/pull.py",
        "            await _taken_back(seen)\n",
        "",
        "tests/http/test_bodies.py::test_a_claim_whose_answer_cannot_be_built_is_given_back",
    ),
    Mutant(
        "bodies-of-any-depth",
        "streams/body.py",
        " > DEEPEST and is_too_deep(value)",
        " < 0",
        "tests/http/test_bodies.py::test_a_body_has_at_most_64_levels_however_it_comes_in",
    ),
    Mutant(
        "a-revoked-token-is-valid",
        TOKEN,
        "return self.filter(lasts, revoked_at=None)",
        "return self.filter(lasts)",
        f"{SECURITY}::test_nobody_is_let_in_without_a_valid_token",
    ),
    Mutant(
        "an-expired-token-is-valid",
        TOKEN,
        "return self.filter(lasts, revoked_at=None)",
        "return self.filter(revoked_at=None)",
        f"{SECURITY}::test_nobody_is_let_in_without_a_valid_token",
    ),
    Mutant(
        "a-right-on-any-topic",
        ACCESS,
        "self._place.format(**given) if self._place else None",
        "None",
        f"{SECURITY}::test_only_the_right_on_this_place_lets_in",
    ),
    Mutant(
        "a-right-on-what-begins-with-its-name",
        TOKEN,
        "    return name == pattern\n",
        "    return name.startswith(pattern)\n",
        f"{SECURITY}::test_only_the_right_on_this_place_lets_in",
    ),
    Mutant(
        "a-batch-for-any-topic",
        PRODUCE,
        '        request.auth.needs("send", topic)\n    trace =',
        "        pass\n    trace =",
        f"{SECURITY}::test_a_request_that_names_its_topics_needs_a_right_to_each",
    ),
    Mutant(
        "anybody-takes-a-message-back",
        PRODUCE,
        'if topic is not None and request.auth.may("send", topic):',
        "if topic is not None:",
        f"{SENDING}::test_only_who_may_send_to_a_topic_takes_a_message_of_it_back",
    ),
    Mutant(
        "tokens-without-tls",
        ACCESS,
        "    refuse_plain(request)\n",
        "",
        f"{TOKENS}::test_a_token_is_taken_over_tls_only",
    ),
    Mutant(
        "views-in-the-transaction-of-the-request",
        APP,
        "    made._non_atomic_requests = set(connections)\n",
        "",
        f"{PROJECTS}::test_no_endpoint_minds_atomic_requests",
    ),
    Mutant(
        "a-probe-waits-for-the-requests",
        THREADS,
        "    return await _on(probe(), work)\n",
        "    return await _on(pool(), work)\n",
        "tests/http/test_busy.py::test_a_probe_does_not_wait_for_the_requests",
    ),
    Mutant(
        "a-request-waits-for-a-lock-as-long-as-the-server-does",
        PRODUCE,
        "    with nullcontext() if dedup_key is None else short_waits():\n",
        "    with nullcontext():\n",
        "tests/http/test_busy.py::test_a_lock_of_somebody_else_is_waited_for_some_seconds",
        "mysql",
    ),
    Mutant(
        "what-is-sent-waits-for-a-commit",
        THREADS,
        ', "AUTOCOMMIT": True}',
        "}",
        f"{PROJECTS}::test_a_message_is_committed_in_a_project_that_commits_by_hand",
    ),
    Mutant(
        "a-dead-connection-fails-a-request",
        THREADS,
        '"CONN_HEALTH_CHECKS": True',
        '"CONN_HEALTH_CHECKS": False',
        "tests/http/test_problems.py::test_a_connection_that_the_server_has_ended_fails_no_request",
        "mysql",
    ),
    Mutant(
        "a-thread-that-goes-on-as-its-caller",
        "streams/produce/identity.py",
        "        vars(_identity).clear()\n        vars(_identity).update(before)\n",
        "        pass\n",
        f"{SENDING}::test_a_thread_has_its_own_name_again_after_a_request",
    ),
    Mutant(
        "anybody-gives-any-right",
        "streams/admin/pages/token.py",
        'if not user.has_perm(f"ems.{name}")]',
        "if False]",
        f"{TOKENS}::test_nobody_gives_a_right_that_he_has_not",
    ),
    Mutant(
        "an-error-as-a-page",
        APP,
        "            response = answer(request, error)\n",
        "            raise error\n",
        f"{PROJECTS}::test_what_is_not_there_is_a_problem_and_no_page",
    ),
]
