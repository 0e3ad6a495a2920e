"""Lists the mutants of relays, and of what follows while a broker is away."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

CALLS = "streams/deliver/calls.py"
BROKER = "streams/relays/broker.py"
RELAY = "streams/relays/relay.py"
REST = "streams/process/shared/rest.py"
AWAY = "tests/guarantees/test_resource_away.py"
HERE = "tests/streams/test_relays.py"
LIVE = "tests/guarantees/test_relays.py"

RELAYS = [
    # A broker that is away spends an attempt of each message.
    Mutant(
        "away-is-a-failure",
        CALLS,
        "        if not away:\n",
        "        if True:\n",
        f"{AWAY}::test_what_was_done_before_is_settled_and_the_rest_comes_again_unspent",
    ),
    Mutant(
        "away-settles-the-whole-call",
        CALLS,
        "return [one for one in failed if one.offset < first.offset], first.offset",
        "return [one for one in failed if one.offset < first.offset], ended",
        f"{AWAY}::test_what_was_done_before_is_settled_and_the_rest_comes_again_unspent",
    ),
    Mutant(
        "failures-before-away-lost",
        CALLS,
        "return [one for one in failed if one.offset < first.offset], first.offset",
        "return [], first.offset",
        f"{AWAY}::test_a_message_that_has_failed_before_is_retried_and_not_counted_as_done",
    ),
    Mutant(
        "no-rest",
        REST,
        "return bool(self._until) and time.monotonic() < self._until",
        "return False",
        f"{AWAY}::test_a_drain_waits_for_what_is_away_and_says_so_meanwhile",
    ),
    Mutant(
        "refuses-and-is-away",
        "streams/process/turn.py",
        "outcome.done or (outcome.failed and not handling.away)",
        "outcome.done",
        f"{AWAY}::test_what_refuses_a_message_is_not_away",
    ),
    Mutant(
        "refused-forgotten-when-away",
        RELAY,
        "for of in {*left, *answers.refused}",
        "for of in left",
        f"{HERE}::test_what_has_failed_before_the_broker_went_away_is_retried_and_not_lost",
    ),
    Mutant(
        "the-next-of-a-key-not-waited-for",
        RELAY,
        "        if not self._ordered:\n            yield messages\n            return\n",
        "        if True:\n            yield messages\n            return\n",
        f"{HERE}::test_an_ordered_relay_publishes_the_next_message_of_a_key_after_the_one_before",
    ),
    # What comes before the failed message would be lost: it counts as done.
    Mutant(
        "nothing-follows-a-failure",
        RELAY,
        "return not self._ordered or all(message.offset < one.offset for one in failed)",
        "return not self._ordered or not failed",
        f"{HERE}::test_after_a_failure_an_ordered_relay_publishes_what_was_sent_before_it"
        "_and_nothing_after",
    ),
    Mutant(
        "all-follows-a-failure",
        RELAY,
        "return not self._ordered or all(message.offset < one.offset for one in failed)",
        "return True",
        f"{HERE}::test_in_an_ordered_relay_nothing_of_a_key_follows_its_failure",
    ),
    Mutant(
        "not-mandatory",
        BROKER,
        "mandatory=True",
        "mandatory=False",
        f"{LIVE}::test_rabbitmq_returns_what_no_queue_would_get_and_the_message_has_failed",
    ),
    Mutant(
        "returned-and-acked-is-taken",
        BROKER,
        "            if one.id not in self.answers.refused:\n",
        "            self.answers.refused.pop(one.id, None)\n            if True:\n",
        f"{LIVE}::test_rabbitmq_returns_what_no_queue_would_get_and_the_message_has_failed",
    ),
    Mutant(
        "unroutable-on-a-virtual-transport-dropped",
        BROKER,
        "return not (self._name and look) or any(look(self._name, routing_key))",
        "return True",
        f"{HERE}::test_what_no_queue_would_get_has_failed_and_the_others_are_done",
    ),
    Mutant(
        "the-link-of-a-parent-used",
        BROKER,
        "if link and link.pid != os.getpid():",
        "if False:",
        f"{HERE}::test_a_connection_is_not_used_after_a_fork_nor_when_it_was_idle_for_long",
    ),
    Mutant(
        "the-password-in-the-text",
        BROKER,
        'text = text.replace(secret, "…")',
        "pass",
        f"{HERE}::test_an_error_with_the_url_or_the_password_in_its_text_is_shown_without",
    ),
]
