"""Lists the mutants of what is claimed as soon as it is sent."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

ARRIVALS = "streams/process/arrivals.py"
CLAIM = "streams/deliver/claim.py"
TESTS = "tests/runtime/test_arrivals.py"

WHEN_SENT = [
    Mutant(
        "wake-up-forgotten-while-a-worker-is-called",
        ARRIVALS,
        "                call.again = True\n",
        "",
        f"{TESTS}::test_while_one_worker_is_called_no_other_one_is",
    ),
    Mutant(
        "wake-up-during-a-look-forgotten",
        ARRIVALS,
        "            if late:\n                self.wake(late)\n",
        "",
        f"{TESTS}::test_what_is_sent_during_a_look_is_claimed_after_it",
    ),
    Mutant(
        "call-waited-for-for-ever",
        ARRIVALS,
        "return time.monotonic() < call.until",
        "return True",
        f"{TESTS}::test_a_worker_that_does_something_else_leaves_it_to_the_poller",
    ),
    Mutant(
        "call-without-a-claim-forgotten",
        ARRIVALS,
        "            self._end(call)\n            self.wake_poller()\n",
        "            self._end(call)\n",
        f"{TESTS}::test_a_worker_that_may_not_claim_leaves_it_to_the_poller",
    ),
    Mutant(
        "other-groups-not-woken",
        ARRIVALS,
        "                if feed.group != group:\n",
        "                if feed.group == group:\n",
        f"{TESTS}::test_the_other_groups_of_the_topic_are_woken",
    ),
    Mutant(
        "one-partition-of-several",
        ARRIVALS,
        "call.again or len(rows) > 1",
        "call.again",
        f"{TESTS}::test_each_partition_that_has_something_gets_its_pass",
    ),
    Mutant(
        "lost-reply-of-a-claim-when-sent",
        CLAIM,
        "            return self._adopting(lambda: None)",
        "            self._unconfirmed.clear()\n            return None",
        f"{TESTS}::test_whatever_is_lost_each_offset_is_claimed_once[8-True]",
        "mysql",
    ),
    Mutant(
        "what-a-claim-has-left-forgotten",
        CLAIM,
        "        self.more = self.group.ordered or taken[0].last_offset + 1 < place.next_offset\n",
        "        self.more = False\n",
        f"{TESTS}::test_what_is_left_is_claimed_by_the_next_turn",
    ),
    Mutant(
        "what-other-partitions-have-forgotten",
        CLAIM,
        "self.group.ordered or bool(self._known) or bool(self.rank and taken)\n",
        "False\n",
        f"{TESTS}::test_a_claim_says_whether_the_group_has_more",
    ),
]
