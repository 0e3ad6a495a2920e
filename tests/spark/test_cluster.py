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
    env = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]]),  # of the executors
    }

    def start(role: str, *words: str) -> subprocess.Popen[bytes]:
        spec = find_spec("pyspark")
        assert spec
        assert spec.origin
        program = Path(spec.origin).parent / "bin" / "spark-class"
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


def answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.timeout(300)
def test_a_job_runs_on_a_standalone_cluster(
    cluster: str, spawn: Spawn, option_file: Path, tmp_path: Path
) -> None:
    send_many([Outgoing("orders", number, key="k") for number in range(5)])
    sequence("default")
    child = spawn(
        "import sys; from sparkjobs.__main__ import main; sys.exit(main(sys.argv[1:]))",
        *("--config", option_file, "trace", "--key", "k"),
        env={
            "EMS_SPARK_MASTER": cluster,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        },
    )
    said = child.succeed(240)
    assert said.count(" sent ") == said.count(" sequenced") == 5
    # It was an executor of the cluster that has read, not this process.
    assert list((tmp_path / "work").glob("app-*/*/stderr"))
