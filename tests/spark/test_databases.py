"""One job, one session and one service for several databases; one that is away fails its part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from monitoring.models import ArchivedDay, Run, Traffic
from sparkjobs.config import Config
from sparkjobs.errors import BadConfig
from sparkjobs.lock import SERVE, alone, is_held
from streams import send_many
from streams.api import Outgoing
from streams.log.sequencer import sequence
from streams.models import Message, Partition
from tests.processes import ROOT, wait_for
from tests.spark.conftest import options_for
from tests.spark.test_archive import DAYS, history
from tests.spark.test_service import SERVICE

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("clean_registry"),
]

BOTH = ("default", "other")
AWAY = "[client]\nhost=127.0.0.1\nport=1\nuser=root\ndatabase=x\n[ems]\nvendor=mysql\n"


@pytest.fixture
def folder(transactional_db: None, tmp_path: Path) -> Path:
    """Return a folder with an option file for each of the two databases of this run."""
    path = tmp_path / "options"
    path.mkdir(mode=0o700)
    for alias in BOTH:
        file = path / f"{alias}.cnf"
        file.touch(mode=0o600)
        shard = "" if alias == "default" else f"shard={alias}\n"
        file.write_text(options_for(connections[alias].settings_dict, tmp_path / "archive") + shard)
    return path


def away(folder: Path, alias: str) -> None:
    """Let nobody answer where this option file leads."""
    shard = "" if alias == "default" else f"shard={alias}\n"
    (folder / f"{alias}.cnf").write_text(AWAY + shard)


def job(folder: Path, *words: str) -> int:
    from sparkjobs.__main__ import main

    return main(["--config", str(folder), *words])


# -- the option files ----------------------------------------------------------------------------


@pytest.mark.any_database
def test_a_folder_has_a_file_for_each_database_and_the_first_is_that_of_ems(tmp_path: Path) -> None:
    for alias in ("streams", "b", "a"):
        shard = "" if alias == "streams" else f"shard={alias}\n"
        (tmp_path / f"{alias}.cnf").write_text(f"[ems]\nvendor=mysql\n{shard}")
    (tmp_path / "README").write_text("not an option file")
    found = Config.load_all(str(tmp_path))
    assert [(config.alias, config.shard) for config in found] == [
        *(("streams", ""), ("a", "a"), ("b", "b"))
    ]
    with pytest.raises(BadConfig, match="is a folder of option files: name one of them"):
        Config.load(str(tmp_path))
    (one,) = Config.load_all(found[1].path)
    assert one == found[1]


@pytest.mark.any_database
@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "has no option file: their names end with .cnf"),
        ({"a": "shard=b"}, "says shard=b: name it b.cnf"),
        # Both would write to the same folders of the archive.
        ({"a": "", "b": ""}, "only the file of EMS\\['DATABASE'\\] has no shard="),
    ],
)
def test_a_folder_that_says_too_little_is_refused(
    files: dict[str, str], said: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / f"{name}.cnf").write_text(f"[ems]\nvendor=mysql\n{text}\n")
    with pytest.raises(BadConfig, match=said):
        Config.load_all(str(tmp_path))


# -- jobs ----------------------------------------------------------------------------------------


@pytest.mark.any_database
def test_each_line_says_of_which_database_it_is_and_an_error_is_of_one_only(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sparkjobs.databases import each

    def work(config: Config) -> int:
        print("one\ntwo", end="")
        print(" three")
        if not config.shard:
            raise OSError("away")
        return 0

    configs = Config.load_all(str(folder))
    assert each("archive", configs, work) == 1
    said = capsys.readouterr()
    lines = [f"{alias}: {text}" for alias in BOTH for text in ("one", "two three")]
    assert said.out.splitlines() == lines
    assert "default: archive: OSError: away\n" in said.err
    with pytest.raises(OSError, match="away"):
        each("archive", configs[:1], work)
    assert capsys.readouterr().out == "one\ntwo three\n"


@pytest.mark.any_database
def test_the_archive_and_the_lake_of_a_shard_are_in_a_folder_of_its_own() -> None:
    from sparkjobs.archive.manifest import folder
    from sparkjobs.lake.manifest import root

    first = Config("default.cnf", "mysql", archive="s3a://bucket/ems/")
    assert folder(first) == "s3a://bucket/ems/"
    shard = replace(first, shard="a=b")
    assert folder(shard) == "s3a://bucket/ems/_shards/database=a%3Db"
    assert root(shard) == "s3a://bucket/ems/_shards/database=a%3Db/_lake"
    blue = replace(shard, namespace="blue")
    assert folder(blue) == "s3a://bucket/ems/_shards/database=a%3Db/_namespaces/blue"


@pytest.mark.exhaustive
@pytest.mark.any_database
def test_days_of_a_shard_are_archived_and_replayed_below_a_folder_of_its_own(
    spark: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have the same topic, as after a move: a day of one never replaces one of the other."""
    history(each=3)
    history(using="other")
    assert job(folder, "archive") == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        *(f"default: flights {day}: 3 messages archived" for day in DAYS[:2]),
        *(f"other: flights {day}: 5 messages archived" for day in DAYS[:2]),
    ]
    archive = tmp_path / "archive"
    shard = archive / "_shards" / "database=other"
    for alias, top in zip(BOTH, (archive, shard), strict=True):
        for day in ArchivedDay.objects.using(alias).all():
            assert day.path == f"{top}/date={day.day}"
            assert list(Path(day.path).glob("topic=flights/*.parquet"))
    # Whoever reads the archive by its folders goes on reading what was there before.
    assert spark.read.parquet(str(archive)).count() == 6
    assert "database" not in spark.read.parquet(str(archive)).columns
    shards = spark.read.parquet(str(archive / "_shards"))
    assert {row["database"] for row in shards.select("database").collect()} == {"other"}
    assert shards.count() == 10
    days = [str(day) for day in DAYS[:2]]
    assert job(folder / "other.cnf", "replay", "flights", *days) == 0
    assert "10 messages sent" in capsys.readouterr().out
    assert Message.objects.filter(offset=None).count() == 0
    assert Message.objects.using("other").filter(offset=None).count() == 10


def test_a_database_that_is_away_fails_its_part_and_the_other_is_rolled_up(
    spark: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away(folder, "default")
    send_many([Outgoing("clicks", n) for n in range(7)], using="other")
    sequence("other")
    assert job(folder, "rollup") == 1
    said = capsys.readouterr()
    assert "default: rollup: OperationalError" in said.err
    assert "other: traffic: " in said.out
    assert [row.messages for row in Traffic.objects.using("other")] == [7]
    jobs = set(Run.objects.using("other").filter(state="done").values_list("job", flat=True))
    assert jobs == {"traffic", "consumption", "backlog"}
    assert not Run.objects.exists()


@pytest.mark.any_database
def test_the_session_is_quick_to_start_only_where_no_database_has_much_to_roll_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs import session as sessions
    from sparkjobs.jobs import rollup
    from sparkjobs.rollup.owed import Owed

    started: list[bool] = []

    class Spark:
        class conf:  # noqa: N801 - Spark's
            @staticmethod
            def set(name: str, value: str) -> None:
                """Nothing is there to set."""

    def session(name: str, *, brief: bool) -> Any:
        started.append(brief)
        return Spark()

    monkeypatch.setattr(sessions, "session", session)
    configs = Config.load_all(str(folder))
    first = Owed(3, 0)
    rollup.Starting(configs).session(first)
    partition = history("clicks", using="other")
    many = rollup.BRIEF + 1
    Partition.objects.using("other").filter(pk=partition.pk).update(next_offset=many)
    starting = rollup.Starting(configs)
    assert starting.session(first) is starting.session(first)
    assert started == [True, False]


@pytest.mark.any_database
def test_a_trace_needs_only_one_database_that_has_the_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.jobs import trace

    status = {"default": 1, "other": 0}
    monkeypatch.setattr(trace, "run", lambda config, options: status[config.alias])
    configs, options = Config.load_all(str(folder)), Namespace()
    assert trace.run_all(configs, options) == 0
    status["other"] = 1
    assert trace.run_all(configs, options) == 1
    del status["other"]  # it fails
    status["default"] = 0
    assert trace.run_all(configs, options) == 1


@pytest.mark.any_database
def test_a_lake_of_several_databases_goes_on_with_those_that_are_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparkjobs.jobs import lake

    passes: list[str] = []

    def run(config: Config, every: int | None = None) -> int:
        passes.append(config.alias)
        if not config.shard:
            raise OSError("away")
        if len(passes) >= 4:
            raise KeyboardInterrupt
        return 0

    monkeypatch.setattr(lake, "run", run)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    with pytest.raises(KeyboardInterrupt):
        lake.run_all(Config.load_all(str(folder)), Namespace(every=60))
    assert passes == [*BOTH, *BOTH]


@pytest.mark.exhaustive
@pytest.mark.any_database
def test_a_lake_of_a_shard_is_beside_its_archive(
    spark: Any, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sparkjobs.lake.reading import lake

    history(each=1)
    history(using="other")
    assert job(folder, "lake") == 0
    shard = tmp_path / "archive" / "_shards" / "database=other"
    assert list(shard.glob("_lake/date=*/topic=flights/*.parquet"))
    counts = [lake(spark, config).count() for config in Config.load_all(str(folder))]
    assert counts == [3, 15]
    assert job(folder, "archive") == 0
    counts = [lake(spark, config).count() for config in Config.load_all(str(folder))]
    assert counts == [3, 15]


# -- the resident service ------------------------------------------------------------------------


@pytest.fixture
def log(folder: Path, tmp_path: Path) -> Path:
    return tmp_path / "serve.log"


@pytest.fixture
def service(folder: Path, log: Path, tmp_path: Path) -> Iterator[Any]:
    """Start the service on both databases; return its process."""
    started: list[subprocess.Popen[str]] = []

    def run() -> subprocess.Popen[str]:
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-u", "-c", SERVICE, str(folder), str(tmp_path)],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                text=True,
            )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_a_service_keeps_each_database_whose_lock_it_has(
    service: Any, folder: Path, log: Path
) -> None:
    default, other = Config.load_all(str(folder))
    with alone(other, SERVE):
        process = service()
        wait_for(lambda: log.read_text().count("default: second") >= 2)
        said = log.read_text()
        assert "other: serve: another one is at work; this one waits to take over" in said
        assert "other: second" not in said
        assert is_held(default, SERVE)
    wait_for(lambda: "other: second" in log.read_text())
    for alias in BOTH:
        assert Run.objects.using(alias).get(job="serve").state == "running"
    process.terminate()
    assert process.wait(30) == 0
    for config in (default, other):
        assert Run.objects.using(config.alias).get(job="serve").state == "done"
        assert not is_held(config, SERVE)
    assert "\nserve: ended\n" in log.read_text()


@pytest.mark.any_database
def test_a_database_that_is_away_does_not_keep_the_service_from_the_other(
    service: Any, folder: Path, log: Path
) -> None:
    there = (folder / "default.cnf").read_text()
    path = folder.parent / "link.sqlite3"
    name = connections["default"].settings_dict["NAME"]
    (folder / "default.cnf").write_text(there.replace(f"path={name}", f"path={path}"))
    service()
    wait_for(lambda: log.read_text().count("other: second") >= 2)
    assert "default: serve: OperationalError: unable to open" in log.read_text()
    path.symlink_to(name)  # it is back
    wait_for(lambda: "default: second" in log.read_text())


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_one_session_rolls_both_databases_up(folder: Path, log: Path) -> None:
    """The service as it is, with a JVM of its own."""
    code = "import sys; from sparkjobs.jobs import serve; serve.EVERY = 1.0; "
    code += "from sparkjobs.resident import due; "
    code += "due.RECONCILE_BEFORE = due.RECONCILE_AFTER; "  # also at night
    code += "from sparkjobs.__main__ import main; sys.exit(main(sys.argv[1:]))"
    for alias in BOTH:
        send_many([Outgoing("clicks", n) for n in range(5)], using=alias)
        sequence(alias)
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", code, "--config", str(folder), "serve"],
            cwd=ROOT,
            env={**os.environ, "EMS_SPARK_MASTER": "local[2]"},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        for alias in BOTH:
            rows = Traffic.objects.using(alias)
            wait_for(rows.exists, log.read_text, timeout=600)
        assert log.read_text().count("starting Spark") == 1
        process.terminate()
        assert process.wait(180) in (0, -signal.SIGALRM), log.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
