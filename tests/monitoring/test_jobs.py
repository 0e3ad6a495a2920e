"""Jobs as processes: handed their database, listened to, limited, ended; and what if Java lacks."""

from __future__ import annotations

import logging
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from monitoring import java, jobs
from monitoring.schedule import SCHEDULE, schedule
from streams.conf import settings
from streams.observe.diagnoses import OK
from streams.observe.doctor import examine
from streams.schedule import of_all_apps
from tests.processes import Spawn, wait_for

pytestmark = pytest.mark.django_db(transaction=True)

# Stands for the Python that runs the jobs: says what it was given, and stays a while.
SCRIPT = """\
#!{python} -S
import os, stat, subprocess, sys, time
path = os.environ["EMS_SPARK_CONFIG"]
print("words", *sys.argv[1:])
print("file", path, oct(stat.S_IMODE(os.stat(path).st_mode)))
print("group", os.getpgrp() == os.getpid(), flush=True)
if "stay" in sys.argv:
    child = subprocess.Popen(["sleep", "600"])
    print("staying", child.pid, flush=True)
    time.sleep(600)
sys.exit(3 if "fail" in sys.argv else 0)
"""
# Stands for a service: it ends by itself some time after SIGTERM.
DRAINING = """\
#!{python} -S
import os, signal, sys, time
if "-c" in sys.argv: sys.exit(0)
print("words", *sys.argv[1:])
signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
asked = []
print("staying", os.getpid(), flush=True)
while not asked:
    time.sleep(0.02)
print("drained", flush=True)
"""
Job = Callable[..., int]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The jobs are run by SCRIPT, on a host that has all that they need."""
    path = tmp_path / "python"
    path.write_text(SCRIPT.format(python=sys.executable))
    path.chmod(0o700)
    monkeypatch.setenv(java.PYTHON, str(path))
    monkeypatch.setattr(java, "missing", lambda: "")
    return path


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What the task says in its log."""
    lines: list[str] = []
    logger, handler = logging.getLogger("monitoring.tasks"), logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel("INFO")
    yield lines
    logger.setLevel(level)
    logger.removeHandler(handler)


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")


def is_gone(pid: int) -> bool:
    """Whether this process has ended; a zombie has."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"


def test_a_job_is_told_its_database_by_a_file_that_is_gone_afterwards(script) -> None:
    lines: list[str] = []
    assert jobs.run("traffic", ["--dry-run"], "default", seconds=7, say=lines.append) == 0
    words, file, group = lines
    assert words == "words -u -m sparkjobs --seconds 7 traffic --dry-run"
    _file, path, mode = file.split()
    assert mode == oct(stat.S_IRUSR | stat.S_IWUSR)
    assert not Path(path).exists()
    assert group == "group True"


@pytest.mark.mysql
def test_no_password_is_in_its_arguments_or_its_environment(script, monkeypatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "PASSWORD", "very-secret")
    given: list[object] = []
    real = subprocess.Popen

    def popen(words, **named):
        given.extend([words, named["env"]])
        return real(words, **named)

    monkeypatch.setattr(subprocess, "Popen", popen)
    jobs.run("traffic", [], "default", seconds=7, say=lambda line: None)
    assert given
    assert "very-secret" not in repr(given)


def test_the_status_of_the_job_is_that_of_the_command(script) -> None:
    out = StringIO()
    with pytest.raises(SystemExit) as error:
        call_command("ems_spark", "rollup", "fail", stdout=out)
    assert error.value.code == 3
    assert "words -u -m sparkjobs --seconds 86400 rollup fail" in out.getvalue()


def test_what_is_not_the_commands_own_is_for_the_job(script) -> None:
    out = StringIO()
    words = ["flights", "2026-01-01", "2026-01-02", "--to", "again", "--sec", "1"]
    call_command("ems_spark", "replay", "--database", "default", *words, stdout=out)
    assert " ".join(["replay", *words]) in out.getvalue()


def test_whatever_happens_here_the_job_and_its_children_are_ended(script) -> None:
    pids: list[int] = []

    def say(line: str) -> None:
        if line.startswith("staying"):
            pids.append(int(line.split()[1]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.run("rollup", ["stay"], "default", seconds=60, say=say)
    wait_for(lambda: is_gone(pids[0]))


def test_a_command_that_is_terminated_ends_its_job(spawn: Spawn, script) -> None:
    child = spawn.command("ems_spark", "rollup", "stay", env={"JAVA_HOME": _java_home(script)})
    path = Path(child.expect("file").split()[1])
    pid = int(child.expect("staying").split()[1])
    child.terminate()
    assert child.wait() == 128 + 15
    wait_for(lambda: is_gone(pid))
    assert not path.exists()


def _java_home(script: Path) -> str:
    """A Java that says it is new enough; and a Python that says it has pyspark: it exits with 0."""
    java_ = script.parent / "bin" / "java"
    java_.parent.mkdir()
    java_.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2\n")
    java_.chmod(0o700)
    script.write_text(
        script.read_text().replace("path = os", "if '-c' in sys.argv: sys.exit(0)\npath = os", 1)
    )
    return str(script.parent)


# -- where something is missing ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 1),
        ('openjdk version "25" 2025-09-16', 25),
        ("no such thing", None),
    ],
)
def test_the_version_of_java_is_read(printed, version, tmp_path, monkeypatch) -> None:
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\necho '{printed}' >&2\n")
    (home / "bin" / "java").chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_version() == version


def test_without_java_the_command_says_what_to_install(without_java) -> None:
    with pytest.raises(CommandError, match="Java 17 or newer"):
        call_command("ems_spark", "rollup")


def test_without_pyspark_too(without_java, tmp_path, monkeypatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o700)
    monkeypatch.setenv(java.PYTHON, str(python))
    with pytest.raises(CommandError, match=r"django-ems\[spark\]' and Java 17"):
        call_command("ems_spark", "archive")


SLEEPING = "#!/bin/sh\nexec sleep 60\n"


@pytest.mark.parametrize("content", [None, "", SLEEPING], ids=["absent", "no program", "silent"])
def test_a_python_or_a_java_that_cannot_be_run_is_missing(content, tmp_path, monkeypatch) -> None:
    """ "No program": it may not be executed, and nor may what is in it."""
    (tmp_path / "bin").mkdir()
    for name in ("python", "java"):
        path = tmp_path / "bin" / name
        if content is not None:
            path.write_text(content)
            path.chmod(0o700 if content else 0o600)
    monkeypatch.setattr(java, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setenv(java.PYTHON, str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (found,) = [diagnosis for diagnosis in examine("default") if diagnosis.name == "spark"]
    assert "django-ems[spark]' and Java 17 or newer" in found.text


def test_without_java_the_report_and_the_doctor_work(without_java) -> None:
    call_command("ems_spark", "report", stdout=StringIO())
    (found,) = [diagnosis for diagnosis in examine("default") if diagnosis.name == "spark"]
    assert found.level == OK  # whoever does not roll up needs none
    assert "Java 17 or newer" in found.text


def test_without_java_the_task_says_so_and_is_done(without_java, logged) -> None:
    tasks = pytest.importorskip("monitoring.tasks", exc_type=ImportError)
    tasks.rollup()
    tasks.nightly()
    assert "".join(logged).count("Java 17 or newer") == 2


# -- beat ----------------------------------------------------------------------------------------


def test_the_task_runs_the_roll_up_as_a_process(script, logged) -> None:
    tasks = pytest.importorskip("monitoring.tasks", exc_type=ImportError)
    tasks.rollup(using="default")
    assert "sparkjobs --seconds 3600 rollup" in "".join(logged)
    tasks.nightly(using="default")
    assert "sparkjobs --seconds 43200 nightly" in "".join(logged)
    assert "ended with status" not in "".join(logged)


def test_each_minute_of_the_task_starts_no_java_to_look_for_it(
    script, logged, tmp_path, monkeypatch
) -> None:
    tasks = pytest.importorskip("monitoring.tasks", exc_type=ImportError)
    looks: list[str] = []

    def missing() -> str:
        looks.append("a look")
        return ""

    monkeypatch.setattr(java, "missing", missing)
    for _ in range(3):
        tasks.rollup()
    assert len(looks) == 1
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))  # another Java
    tasks.rollup()
    assert len(looks) == 2


def test_a_task_whose_job_fails_is_in_the_log(script, logged, monkeypatch) -> None:
    tasks = pytest.importorskip("monitoring.tasks", exc_type=ImportError)
    monkeypatch.setattr(jobs, "run", lambda *words, **named: 5)
    tasks.rollup()
    assert "ended with status 5" in "".join(logged)


def test_the_schedule_has_the_roll_up_of_each_alias() -> None:
    entries = of_all_apps("other")
    assert entries["ems-other-rollup"] == {
        "task": "ems.rollup",
        "schedule": 300.0,
        "kwargs": {"using": "other"},
        "options": {"expires": 300.0},
    }
    assert entries["ems-other-nightly"]["task"] == "ems.nightly"
    assert "ems-other-sequence" in entries
    assert of_all_apps() | SCHEDULE == of_all_apps()


def test_ems_sync_schedules_adds_the_roll_up() -> None:
    beat = pytest.importorskip("django_celery_beat.models", exc_type=ImportError)
    call_command("ems_sync_schedules", stdout=StringIO())
    entry = beat.PeriodicTask.objects.get(name="ems-rollup")
    assert (entry.task, entry.interval.every, entry.expire_seconds) == ("ems.rollup", 300, 300)


def test_streams_imports_nothing_of_monitoring() -> None:
    root = Path(settings.__code__.co_filename).parent
    importing = re.compile(r"^\s*(from|import) (monitoring|sparkjobs)\b", re.MULTILINE)
    assert [path for path in root.rglob("*.py") if importing.search(path.read_text())] == []
    others = r"streams(?!\.rules| import rules$)|monitoring|django"
    ours = re.compile(rf"^\s*(from|import) ({others})\b", re.MULTILINE)
    spark = root.parent / "sparkjobs"
    assert [path for path in spark.rglob("*.py") if ours.search(path.read_text())] == []
    assert os.sep in str(root)


# -- the option file that the project has --------------------------------------------------------


def test_the_file_that_the_environment_names_is_used_and_stays(script, tmp_path, monkeypatch):
    """On a cluster it is on every host; one that is written here is not."""
    own = tmp_path / "own.cnf"
    own.write_text("[ems]\nvendor=sqlite\npath=x\n")
    own.chmod(0o600)
    monkeypatch.setenv(jobs.VARIABLE, str(own))
    lines: list[str] = []
    assert jobs.run("traffic", [], "default", seconds=7, say=lines.append) == 0
    assert lines[1].split()[1] == str(own)
    assert own.exists()


def test_it_is_not_used_for_another_alias(script, tmp_path, monkeypatch):
    monkeypatch.setenv(jobs.VARIABLE, str(tmp_path / "own.cnf"))
    monkeypatch.setattr(jobs, "database", lambda: "streams")
    lines: list[str] = []
    assert jobs.run("traffic", [], "default", seconds=7, say=lines.append) == 0
    assert "ems-spark-" in lines[1]


# -- shards --------------------------------------------------------------------------------------

SHARDS = {"clicks": "other", "logs.*": "other"}
LISTING = """\
#!{python} -S
import os, sys
path = os.environ["EMS_SPARK_CONFIG"]
print("words", *sys.argv[4:])
print("files", *(sorted(os.listdir(path)) if os.path.isdir(path) else ["one"]), flush=True)
"""


@pytest.fixture
def listing(script, ems_settings) -> Callable[..., str]:
    """Run ems_spark with two databases; return the option files that the job gets."""
    script.write_text(LISTING.format(python=sys.executable))
    ems_settings(SHARDS=SHARDS)

    def files(*words: str) -> str:
        out = StringIO()
        call_command("ems_spark", *words, stdout=out)
        return out.getvalue().splitlines()[-1]

    return files


def test_a_job_gets_the_option_files_of_all_databases_or_of_the_one_that_is_named(
    listing, ems_settings
) -> None:
    days = ["2026-01-01", "2026-01-02"]
    assert listing("archive") == "files default.cnf other.cnf"
    assert listing("serve") == "files default.cnf other.cnf"
    assert listing("trace", "--key", "k") == "files default.cnf other.cnf"
    for words in (
        ["archive", "--database", "other"],
        # A job that names a topic works where that is.
        ["replay", "clicks", *days],
        ["replay", "--to", "logs.again", "clicks", *days],
        ["trace", "--key", "k", "--topic", "orders"],
    ):
        assert listing(*words) == "files one"
    with pytest.raises(CommandError, match="clicks is on other and orders on default"):
        listing("replay", "clicks", *days, "--to", "orders")
    ems_settings(SHARDS={})
    assert listing("archive") == "files one"


def test_a_replay_reads_the_archive_of_the_shard_that_has_the_topic(listing, monkeypatch) -> None:
    chosen: list[str | None] = []
    monkeypatch.setattr(jobs, "run", lambda job, words, using, **named: chosen.append(using))
    days = ["2026-01-01", "2026-01-02"]
    for topic in ("clicks", "logs.web", "orders"):
        call_command("ems_spark", "replay", topic, *days)
    call_command("ems_spark", "reconcile")
    assert chosen == ["other", "other", "default", None]


def test_files_of_the_project_must_be_of_all_its_databases(listing, tmp_path, monkeypatch) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "default.cnf").write_text("[ems]\nvendor=sqlite\npath=x\n")
    monkeypatch.setenv(jobs.VARIABLE, str(own / "default.cnf"))
    with pytest.raises(CommandError, match="name a folder with a file for each of default, other"):
        listing("archive")
    monkeypatch.setenv(jobs.VARIABLE, str(own))
    with pytest.raises(CommandError, match=f"There is no option file {own / 'other.cnf'}"):
        listing("archive")
    assert listing("archive", "--database", "default") == "files one"
    (own / "other.cnf").write_text("[ems]\nvendor=sqlite\npath=x\nshard=other\n")
    assert listing("archive") == "files default.cnf other.cnf"
    assert (own / "other.cnf").exists()


def test_one_task_of_beat_rolls_all_databases_up(script, logged, ems_settings) -> None:
    tasks = pytest.importorskip("monitoring.tasks", exc_type=ImportError)
    script.write_text(LISTING.format(python=sys.executable))
    entries = schedule()
    entry = entries["ems-rollup"]
    ems_settings(SHARDS=SHARDS)
    assert entries.keys() == {"ems-rollup", "ems-nightly"}
    assert schedule("default") == entries
    assert schedule("other") == {}
    assert schedule("third")["ems-third-rollup"] == {**entry, "kwargs": {"using": "third"}}
    tasks.rollup(**entry["kwargs"])
    assert "files default.cnf other.cnf" in "".join(logged)


# -- the resident service ------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_service_has_no_limit_gets_the_signal_and_may_end_in_its_own_time(
    spawn: Spawn, script
) -> None:
    home = _java_home(script)
    script.write_text(DRAINING.format(python=sys.executable))
    child = spawn.command("ems_spark", "serve", env={"JAVA_HOME": home})
    assert "--seconds 0 serve" in child.expect("words")
    child.expect("staying")
    child.terminate()
    child.expect("drained")
    assert child.wait() == 0


def test_a_service_ends_with_a_command_that_is_killed(spawn: Spawn, script) -> None:
    home = _java_home(script)
    script.write_text(DRAINING.format(python=sys.executable))
    child = spawn.command("ems_spark", "serve", env={"JAVA_HOME": home})
    pid = int(child.expect("staying").split()[1])
    child.kill()
    wait_for(lambda: is_gone(pid))


def test_the_task_is_the_fallback_of_a_service(script, logged) -> None:
    tasks = pytest.importorskip("monitoring.tasks", exc_type=ImportError)
    tasks.rollup(using="default")
    assert "rollup --fallback" in "".join(logged)
