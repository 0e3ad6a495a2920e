"""Batches and the sink work with the oldest pyspark that may be installed; streams say why not."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from streams import Outgoing, send_many
from streams.log.sequencer import sequence
from streams.models import Message, Topic
from tests import environments
from tests.processes import ROOT

EXTRA = "optional-dependencies"

SCRIPT = """
import os, sys
os.environ["EMS_SPARK_MASTER"] = "local[2]"
import pyspark
from sparkjobs.session import session

path, folder = sys.argv[1:]
assert pyspark.__version__ == os.environ["EMS_TEST_PYSPARK"], pyspark.__version__
spark = session("oldest")
orders = spark.read.format("ems").options(config=path, topic="orders").load()
copy = orders.select("key", "body", "body_type", "headers")
copy.write.format("ems").options(config=path, topic="copies").mode("append").save()
files = spark.readStream.schema("body string").json(f"{folder}/in")
query = files.writeStream.format("ems").options(config=path, topic="streamed")
query = query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
query.start().awaitTermination()
try:
    stream = spark.readStream.format("ems").options(config=path, topic="orders").load()
    stream.writeStream.format("noop").option("checkpointLocation", f"{folder}/c").start()
    spark.streams.active[0].awaitTermination()
except Exception as error:
    print(error)
"""


def test_the_extra_begins_with_the_version_that_is_tested() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][EXTRA]
    oldest = environments.OLDEST_PYSPARK.removesuffix(".0")
    assert f"pyspark[sql]>={oldest},<5" in extras["spark"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.any_database
@pytest.mark.exhaustive  # 450 MB to download, once, and a session of its own
@pytest.mark.timeout(1800)
def test_batches_and_the_sink_work_and_a_stream_is_refused(
    option_file: Path, tmp_path: Path
) -> None:
    for name in ("copies", "streamed"):
        Topic.objects.create(name=name)
    send_many([Outgoing("orders", {"n": n}, key="k", headers={"h": "1"}) for n in range(20)])
    sequence("default")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text('{"body": "a"}\n{"body": "b"}\n')
    python = environments.oldest_pyspark()
    env = {**os.environ, "EMS_TEST_PYSPARK": environments.OLDEST_PYSPARK, "PYTHONPATH": str(ROOT)}
    env.pop("PYSPARK_PYTHON", None)
    words = [str(python), "-c", SCRIPT, str(option_file), str(tmp_path)]
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    messages = Message.objects.filter(partition__topic__name="copies").order_by("pk")
    assert messages.filter(key="k", body_type="json", headers={"h": "1"}).count() == 20
    streamed = Message.objects.filter(partition__topic__name="streamed")
    assert {bytes(message.body) for message in streamed} == {b"a", b"b"}
    assert "to read a stream needs pyspark 4.2 or newer" in said
