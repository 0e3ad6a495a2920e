"""Lists the mutants of lanes: what keeps a key in its order, and what a death repeats."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

LANES = "streams/deliver/lanes.py"
THREADS = "streams/process/lanes.py"
EXPIRE = "streams/consume/outcome/expire.py"
CLOSING = "streams/deliver/closing.py"
KEPT = "tests/guarantees/test_lanes.py"

OF_LANES = [
    Mutant(
        "what-is-not-wanted-waits-for-its-key",
        "streams/consume/outcome/parking.py",
        "set(range(first, stop)).difference(passed)",
        "range(first, stop)",
        "tests/guarantees/test_lanes.py::test_what_a_group_does_not_want_waits_for_no_key",
    ),
    Mutant(
        "a-key-in-two-lanes",
        LANES,
        "            self._busy.add(one.key)\n",
        "            pass\n",
        f"{KEPT}::test_a_key_is_in_one_lane_at_a_time_and_in_its_order",
    ),
    Mutant(
        "a-lane-that-ends-with-its-connection",
        THREADS,
        "            with suppress(Error):\n",
        "            if True:\n",
        f"{KEPT}::test_a_call_is_made_although_its_lane_cannot_reach_the_database_before_it",
    ),
    Mutant(
        "a-failed-key-goes-on-in-lanes",
        LANES,
        "                self._held.add(end.called.key)\n",
        "                pass\n",
        f"{KEPT}::test_a_failed_key_waits_and_the_claim_goes_on_without_it",
    ),
    Mutant(
        "what-did-not-begin-in-lanes-counts-as-done",
        CLOSING,
        "    return [Failure(offset, NotBegun()) for offset in sorted(rest)]",
        "    return []",
        f"{KEPT}::test_a_process_that_stops_repeats_nothing",
    ),
    Mutant(
        "a-stop-gives-back-what-lanes-have-done",
        LANES,
        "stop = first + self._begun_bits.bit_length() if early else delivery.last_offset + 1",
        "stop = delivery.progress if early else delivery.last_offset + 1",
        f"{KEPT}::test_a_process_that_stops_repeats_nothing",
    ),
    Mutant(
        "a-lane-does-not-note-what-it-has-done",
        LANES,
        "                    self._done_bits |= self._bit(one.message)\n",
        "                    pass\n",
        f"{KEPT}::test_a_kill_repeats_only_the_calls_that_ran",
    ),
    Mutant(
        "what-is-settled-behind-a-call-is-claimed-again",
        EXPIRE,
        "    if delivery.group.ordered and (delivery.settled or begun is not None):",
        "    if delivery.group.ordered and begun is not None:",
        f"{KEPT}::test_of_a_host_that_is_gone_what_was_settled_behind_a_call_is_not_repeated",
    ),
    Mutant(
        "a-full-table-repeats-what-lanes-have-done",
        CLOSING,
        "    if delivery.in_lanes:\n",
        "    if False:\n",
        f"{KEPT}::test_when_no_more_may_be_parked_what_is_done_in_lanes_is_not_repeated",
    ),
    Mutant(
        "the-second-death-in-lanes-is-taken-for-the-first",
        EXPIRE,
        "last.progress <= offset or last.failures().get(offset) == death",
        "last.progress <= offset",
        f"{KEPT}::test_a_message_that_ends_each_of_its_processes_runs_alone_and_dies_alone",
    ),
]
