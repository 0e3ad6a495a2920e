"""A failover fails if EMS does not go on after it, or leaves messages that have survived it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.lab.ha.result import Result

HELD = Result(
    acked=9,
    acked_before=4,
    acked_after=5,
    handled_after=9,
    lost=0,
    unhandled=0,
    unknown=0,
    unknown_there=0,
    failed=0,
    failed_there=0,
    twice=0,
    reused=0,
    no_send=1.0,
    no_handled=1.0,
    ended=0,
    findings=[],
    rewound=None,
)


@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize(
    "change", [{"acked_after": 0}, {"handled_after": 0}, {"unhandled": 1}, {"reused": 1}]
)
def test_a_broken_promise_is_a_failure_of_every_cluster(
    change: dict[str, Any], lossless: bool
) -> None:
    assert HELD.failures(lossless=lossless) == []
    assert replace(HELD, **change).failures(lossless=lossless)


def test_what_is_lost_must_be_told_where_it_may_be_lost() -> None:
    lost = replace(HELD, lost=3)
    assert lost.failures(lossless=True)
    assert lost.failures(lossless=False)
    assert replace(lost, rewound=0.5).failures(lossless=False) == []
