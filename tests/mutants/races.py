"""Lists the mutants of locks and conditions that matter only while somebody else writes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CLAIM = "streams/consume/claim.py"
EXPIRE = "streams/consume/outcome/expire.py"
CLIENT = "streams/process/shared/client.py"
REWINDS = "streams/log/rewinds.py"
CLAIMERS = "tests/concurrency/test_claimers.py"
RESETS = "tests/concurrency/test_resets.py"
LEASING = "tests/guarantees/test_leases.py"
REWOUND = "tests/guarantees/test_rewound_logs.py"

RACES = [
    # Its offsets would be nobody's until the deadline.
    Mutant(
        "claim-in-doubt-not-waited-for",
        CLAIM,
        '(group=self.group).order_by("replay").select_for_update())',
        '(group=self.group).order_by("replay"))',
        f"{CLAIMERS}::test_a_claim_whose_commit_is_still_under_way_is_waited_for",
        "mysql",
    ),
    Mutant(
        "retry-in-doubt-not-waited-for",
        CLAIM,
        "list(rows.select_for_update())",
        "list(rows)",
        f"{CLAIMERS}::test_a_claim_whose_commit_is_still_under_way_is_waited_for",
        "mariadb",
    ),
    # Its holder would go on while the cursor gives out the same messages again.
    Mutant(
        "given-back-claimed-beside-a-reset",
        CLAIM,
        'cursors.filter(partition=partition_id).select_for_update().values_list("pk")',
        'cursors.filter(partition=partition_id).values_list("pk")',
        f"{RESETS}::test_a_claim_of_what_was_given_back_is_taken_by_the_reset_too",
        "mysql",
    ),
    Mutant(
        "swept-from-an-old-progress",
        EXPIRE,
        "select_for_update(skip_locked=True).filter(progress=delivery.progress)",
        "select_for_update(skip_locked=True)",
        f"{LEASING}::test_what_is_settled_while_the_sweep_comes_to_it_is_not_repeated",
    ),
    Mutant(
        "lease-longer-than-a-sweep-waits",
        CLIENT,
        "group_id=group, lease_until=UtcNow(LEASE))",
        "group_id=group, lease_until=UtcNow(LEASE * 4 / 3))",
        f"{LEASING}::test_a_process_takes_no_lease_for_longer_than_a_dead_one_is_waited_for",
    ),
    Mutant(
        "lease-believed-in-for-too-long",
        CLIENT,
        "self.client_id = client_id\n        self._lease_ends = asked + LEASE_SECONDS",
        "self.client_id = client_id\n        self._lease_ends = asked + LEASE_SECONDS + 5",
        f"{LEASING}::test_a_process_takes_no_lease_for_longer_than_a_dead_one_is_waited_for",
    ),
    # The messages from where it was set to would never be delivered.
    Mutant(
        "jump-past-a-group-that-was-set-back",
        REWINDS,
        "filter(pk=cursor.pk, next_offset=cursor.next_offset)",
        "filter(pk=cursor.pk)",
        f"{REWOUND}::test_a_group_that_was_set_back_meanwhile_loses_nothing_by_the_jump",
        "mysql",
    ),
]
