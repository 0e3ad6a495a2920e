"""The same jobs on a standalone cluster, whose executors are processes of their own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from streams import Outgoing, send_many
from streams.log.sequencer import sequence
from streams.models import Message
from streams.operate.topics import create
from tests.processes import ROOT, Spawn, wait_for
from tests.servers import free_port

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.any_database,
    pytest.mark.exhaustive,  # a master and a worker beside the session that the others share
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A master and a worker on the loopback; the address of the master."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    logs = (tmp_path / "cluster.log").open("wb")
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    env.pop("PYTHONPATH", None)

    def start(role: str, *words: str) -> subprocess.Popen[bytes]:
        program = pyspark() / "bin" / "spark-class"
        name = f"org.apache.spark.deploy.{role.lower()}.{role}"
        command = [str(program), name, "--host", "127.0.0.1", "--webui-port", "0", *words]
        return subprocess.Popen(command, env=env, stdout=logs, stderr=logs, start_new_session=True)

    processes = [start("Master", "--port", str(port))]
    try:
        wait_for(lambda: answers(port), (tmp_path / "cluster.log").read_text)
        work = ("--cores", "1", "--memory", "2g", "--work-dir", str(tmp_path / "work"))
        processes.append(start("Worker", *work, master))
        yield master
    finally:
        for process in reversed(processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        logs.close()


def pyspark() -> Path:
    spec = find_spec("pyspark")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent


@pytest.fixture
def python_without_ems(tmp_path: Path) -> Path:
    """A Python of executors: it has pyspark, pyarrow and the driver; neither EMS nor Django."""
    path = tmp_path / "python"
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "django.py").write_text("raise ImportError('executors have no Django')")
    # Without "site" nothing reads the file with which the checkout is installed.
    paths = f"$PYTHONPATH:{hiding}:{pyspark().parent}"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{paths}" exec {sys.executable} -S "$@"\n')
    path.chmod(0o700)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    look = [str(path), "-c", "import pyarrow, sparkjobs"]
    done = subprocess.run(look, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "No module named 'sparkjobs'" in done.stderr
    return path


def answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.timeout(900)
def test_a_job_runs_on_a_standalone_cluster_whose_workers_lack_the_package(
    cluster: str, python_without_ems: Path, spawn: Spawn, option_file: Path, tmp_path: Path
) -> None:
    send_many([Outgoing("orders", number, key="k") for number in range(5)])
    sequence("default")
    child = spawn(
        "import sys; from sparkjobs.__main__ import main; sys.exit(main(sys.argv[1:]))",
        *("--config", option_file, "trace", "--key", "k"),
        env={
            "EMS_SPARK_MASTER": cluster,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(python_without_ems),
        },
    )
    said = child.succeed(800)
    assert said.count(" sent ") == said.count(" sequenced") == 5
    # It was an executor of the cluster that has read, not this process.
    assert list((tmp_path / "work").glob("app-*/*/stderr"))


SINK = """
import sys
from sparkjobs.session import session
rows = [("good", "k"), ("better", None)]
frame = session("sink").createDataFrame(rows, "body string, key string")
frame.write.format("ems").options(config=sys.argv[1], topic="orders").mode("append").save()
bad = frame.selectExpr("body", "'a b' AS tag")
try:
    bad.write.format("ems").options(config=sys.argv[1], topic="orders").mode("append").save()
except Exception as error:
    assert "A tag has letters" in str(error), error
    print("refused")
"""


@pytest.mark.timeout(900)
def test_executors_that_lack_ems_and_django_check_rows_by_the_rules_of_a_send(
    cluster: str, python_without_ems: Path, spawn: Spawn, option_file: Path
) -> None:
    create("orders", 3, "default")
    child = spawn(
        SINK,
        option_file,
        env={
            "EMS_SPARK_MASTER": cluster,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(python_without_ems),
        },
    )
    assert "refused" in child.succeed(800)
    bodies = Message.objects.order_by("body").values_list("body", flat=True)
    assert [bytes(body) for body in bodies] == [b"better", b"good"]


@pytest.mark.timeout(900)
def test_spark_submit_prints_what_the_job_says_and_no_log_of_spark(
    option_file: Path, tmp_path: Path
) -> None:
    """The JVM is there before the job: its log and its time zone are set when the job begins."""
    send_many([Outgoing("orders", number, key="k") for number in range(5)])
    sequence("default")
    done = subprocess.run(
        [
            *(str(pyspark() / "bin" / "spark-submit"), "--master", "local[1]"),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
            str(ROOT / "sparkjobs" / "__main__.py"),
            *("--config", str(option_file), "trace", "--key", "k"),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TZ": "Asia/Shanghai",
        },
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" sent ") == 5
    # spark-submit passes on all that the job says to its standard output.
    assert "trace: Spark has started" in done.stdout
    # Spark sets its log up when the context begins; what it says until then is all.
    assert "DAGScheduler" not in done.stderr, done.stderr
    assert done.stderr.count(" INFO ") < 60, done.stderr
