"""The end of ``make demo``: the ranking of topics and the slowest group, or what to install."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.demo.test_demo import DEMO, processes_of, run
from tests.processes import PATIENCE_SECONDS, Child, wait_for

__all__ = ["run"]  # the fixture
pytestmark = [pytest.mark.slow, pytest.mark.any_database]

# A session takes five seconds to start, and a minute where much else is at work.
SPARK_SECONDS = 400


@pytest.fixture
def with_java(demo_env: dict[str, str]) -> None:
    if "JAVA_HOME" in os.environ:
        demo_env["JAVA_HOME"] = os.environ["JAVA_HOME"]
    else:
        del demo_env["JAVA_HOME"]


def test_without_java_the_demo_says_in_one_line_what_to_install(
    run: Callable[..., Child],
) -> None:
    output = run(*DEMO, "--flights", "3").succeed(PATIENCE_SECONDS)
    (line,) = [line for line in output.splitlines() if "Java" in line]
    assert line.startswith("Not rolled up. Spark jobs need: ")
    assert "Java 17 or newer" in line


@pytest.mark.spark
@pytest.mark.timeout(SPARK_SECONDS)
def test_the_demo_ends_with_the_ranking_and_the_slowest_group(
    run: Callable[..., Child], with_java: None, tmp_path: Path
) -> None:
    output = run(*DEMO, "--flights", "300").succeed(SPARK_SECONDS)
    ranking = output.partition("Rolled up by Spark in")[2]
    assert re.search(r"^ +\d+ +flights +299 +[\d,]+ +\d+ *$", ranking, re.MULTILINE), output
    slowest = re.search(r"Slowest group: (\w+), (\d+\.\d\d) s on average", ranking)
    assert slowest, output
    assert float(slowest[2]) > 0
    # Spark's own helpers end a moment after it: they notice that it is gone.
    wait_for(lambda: processes_of(tmp_path) == [])
    assert not list((tmp_path / "stage").iterdir()), "an option file is left behind"


@pytest.mark.spark
@pytest.mark.timeout(SPARK_SECONDS)
def test_interrupted_while_spark_is_at_work_nothing_is_left_behind(
    run: Callable[..., Child], with_java: None, tmp_path: Path
) -> None:
    demo = run(*DEMO, "--flights", "3")
    demo.expect("Audit of")
    wait_for(lambda: any("sparkjobs" in line for line in processes_of(tmp_path)))
    demo.send_signal(signal.SIGINT)
    assert demo.wait() == 128 + signal.SIGINT
    wait_for(lambda: processes_of(tmp_path) == [])
    assert not list((tmp_path / "stage").iterdir())
