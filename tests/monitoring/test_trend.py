"""How fast a lag grows, and when it will be 0."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sparkjobs.rollup.trend import Trend, fitted

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)
ABOUT = pytest.approx


@pytest.mark.parametrize(
    ("lags", "trend", "clear_seconds"),
    [
        ((100, 80, 60), ABOUT(-20), ABOUT(180)),  # falls by 20 a minute: 3 minutes left
        ((10, 30, 50), ABOUT(20), None),
        ((5, 5, 5), ABOUT(0), None),
        ((7,), None, None),  # nobody knows yet
        ((0,), None, 0.0),
        ((4, 2, 0), ABOUT(-2), 0.0),
        ((3, None, 1), ABOUT(-1), ABOUT(60)),
        ((9, 5, None), ABOUT(-4), None),
        ((None,), None, None),
        ((10, 0, 20, 0, 10), ABOUT(0), None),  # not the line between the ends
        ((30, 0, 0, 10), ABOUT(-6), ABOUT(100)),
    ],
)
def test_a_trend_is_the_slope_and_says_when_a_falling_lag_is_gone(
    lags: tuple[int | None, ...], trend: float | None, clear_seconds: float | None
) -> None:
    samples = [(NINE + n * timedelta(minutes=1), lag) for n, lag in enumerate(lags)]
    assert fitted(samples) == Trend(trend, clear_seconds)
    assert fitted(samples[::-1]) == Trend(trend, clear_seconds)


def test_a_lag_that_stays_has_no_trend_whatever_rounding_leaves() -> None:
    """The run is at some second of its minute, the samples before it are of whole minutes."""
    at = NINE.replace(second=7, microsecond=123457)
    samples = [(at, 2), *((NINE - n * timedelta(minutes=1), lag) for n, lag in ((1, 1), (2, 3)))]
    samples += [(NINE - n * timedelta(minutes=1), lag) for n, lag in ((3, 3), (4, 1))]
    assert fitted(samples) == Trend(0.0, None)
