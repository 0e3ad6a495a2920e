"""The end of ``make demo``: the ranking of topics and the slowest group, or what to install."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.demo.terminal import Terminal
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


@pytest.mark.exhaustive
def test_without_java_the_demo_says_in_one_line_what_to_install(
    run: Callable[..., Child],
) -> None:
    output = run(*DEMO, "--flights", "3").succeed(PATIENCE_SECONDS)
    (line,) = [line for line in output.splitlines() if "Java" in line]
    assert line.startswith("Not rolled up. Spark jobs need: ")
    assert "Java 17 or newer" in line


@pytest.mark.exhaustive
def test_with_java_alone_the_demo_says_how_to_see_the_figures_of_spark(
    run: Callable[..., Child], demo_env: dict[str, str], tmp_path: Path
) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")  # it has no pyspark
    for program in (java, python):
        program.chmod(0o700)
    demo_env |= {"JAVA_HOME": str(java.parent.parent), "PYSPARK_PYTHON": str(python)}
    output = run(*DEMO, "--flights", "3").succeed(PATIENCE_SECONDS)
    (line,) = [line for line in output.splitlines() if "Java" in line]
    assert line.startswith("Not rolled up. Java is here: make demo SPARK=1 installs pyspark")


# `make demo` up to the start of the demo: which environment it asks for.
ASKED = """\
import sys
from pathlib import Path
from tests import dev, environments
def demo(*, spark=False):
    print("with pyspark" if spark else "without", flush=True)
    sys.exit(0)
environments.demo = demo
environments.ROOT = dev.ROOT = Path(sys.argv[1])
dev.java = dict
sys.argv = ["dev.py", "demo"]
sys.exit(dev.main())
"""


@pytest.mark.parametrize(
    ("variables", "said"),
    [({"SPARK": "1"}, "with pyspark"), ({"SPARK": "0"}, "without"), ({}, "without")],
)
def test_make_demo_installs_pyspark_only_on_request(
    run: Callable[..., Child], demo_env: dict[str, str], tmp_path: Path, variables, said
) -> None:
    demo_env |= variables
    output = run(sys.executable, "-c", ASKED, str(tmp_path)).succeed()
    assert output.strip() == said


@pytest.mark.parametrize(("answer", "said"), [(b"y\n", "with pyspark"), (b"\n", "without")])
def test_in_a_terminal_with_java_make_demo_asks(
    demo_env: dict[str, str], tmp_path: Path, answer: bytes, said: str
) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    java.chmod(0o700)
    demo_env |= {"JAVA_HOME": str(java.parent.parent)}
    terminal = Terminal([sys.executable, "-c", ASKED, str(tmp_path)], demo_env)
    try:
        terminal.expect("Install pyspark")
        terminal.write(answer)
        terminal.expect(said)
    finally:
        terminal.close()


@pytest.mark.exhaustive
@pytest.mark.spark
@pytest.mark.timeout(SPARK_SECONDS)
def test_the_demo_ends_with_the_ranking_and_the_slowest_group(
    run: Callable[..., Child], with_java: None, tmp_path: Path
) -> None:
    output = run(*DEMO, "--flights", "300").succeed(SPARK_SECONDS)
    compared, _, ranking = output.partition("Rolled up by Spark in")
    assert re.search(r"^ +\d+ +flights +299 +[\d,]+ +\d+ *$", ranking, re.MULTILINE), output
    slowest = re.search(r"Slowest group: (\w+), (\d+\.\d\d) s on average", ranking)
    assert slowest, output
    assert float(slowest[2]) > 0
    assert "All messages and deliveries compared by Spark in" in compared
    # Spark's own helpers end a moment after it: they notice that it is gone.
    wait_for(lambda: processes_of(tmp_path) == [])
    assert not list((tmp_path / "stage").iterdir()), "an option file is left behind"


@pytest.mark.exhaustive
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
