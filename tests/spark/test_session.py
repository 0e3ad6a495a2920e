"""The session: what it is named, what it sends, what it refuses; and what a job says meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from sparkjobs import progress
from sparkjobs.errors import BadConfig
from sparkjobs.package import packed
from sparkjobs.session import describe, session
from tests.processes import wait_for

pytestmark = pytest.mark.any_database


def test_source_and_sink_can_be_imported_from_the_file_that_executors_get(tmp_path: Path) -> None:
    """Where no Django is, as on an executor."""
    with ZipFile(packed()) as file:
        names = file.namelist()
    assert {"sparkjobs/source/datasource.py", "streams/rules/names.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    code = (
        "import sys; sys.modules['django'] = None\n"
        "import sparkjobs.sink.writer, sparkjobs.archive.staging\n"
        "import sparkjobs.source.datasource as d, streams.rules.names as r\n"
        "print(d.__file__, r.__file__)"
    )
    words = [sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": packed()}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.count(packed()) == 2, done.stdout + done.stderr


def test_spark_connect_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    with pytest.raises(BadConfig, match="SPARK_REMOTE is set"):
        session("trace")


def test_what_a_job_does_is_named_on_sparks_pages(spark: Any) -> None:
    describe(spark, "traffic")
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "EMS traffic"


def test_a_long_job_says_how_far_it_is(
    spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert progress.tasks() == ""
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.1)
    said: list[str] = []

    def slow(batches: Any) -> Any:
        time.sleep(2)
        yield from batches

    with progress.shown("archive"):
        spark.range(10, numPartitions=2).mapInArrow(slow, "id long").collect()
        said += capsys.readouterr().err.splitlines()
    lines = [line for line in said if line.startswith("archive: ") and "of 2 tasks" in line]
    assert lines, said


@contextmanager
def standard_error(path: Path) -> Iterator[Path]:
    """Make it a file of this process, which may be read while others write."""
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield path
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_the_start_of_a_jvm_hides_one_line_and_no_other(tmp_path: Path) -> None:
    from sparkjobs.jvm import NOISE, quiet_start

    noise = NOISE.decode()
    with standard_error(tmp_path / "stderr") as stderr:
        with quiet_start():
            subprocess.run(["sh", "-c", f"echo 'WARNING: {noise}' >&2; echo 'no Java' >&2"])
            os.write(2, b"and of this process\n")
        wait_for(lambda: "and of this process" in stderr.read_text())
        assert "no Java\n" in stderr.read_text()
        assert noise not in stderr.read_text()
        os.write(2, b"afterwards\n")
        assert "afterwards" in stderr.read_text()
