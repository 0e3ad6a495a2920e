"""A stream into the sink sends each row once, though its driver is killed and its tasks fail."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from monitoring.models import StagedMessage
from streams import Outgoing, send_many
from streams.log.sequencer import sequence
from streams.models import Message, Topic
from tests.processes import Spawn

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.mysql,
    pytest.mark.one_server,
    pytest.mark.exhaustive,  # three sessions; tests/spark/test_sink.py kills without Spark
    pytest.mark.timeout(1600),
]

# In the first batch a task fails when it has staged rows, and a slow one runs twice. Rows come in
# another order in each attempt.
STREAM = """
import os, random, sys, time
os.environ["EMS_SPARK_MASTER"] = "local[2,4]"
os.environ["TZ"] = "UTC"
path, checkpoint, batch, when = sys.argv[1:]
os.environ["EMS_TEST_KILL"] = f"{os.getpgid(0)} {batch} {when}"
from sparkjobs import session as sessions
from sparkjobs.config import Config
from tests.spark.killing import KillingSource
from tests.spark.small import SMALL

sessions.LOCAL.update(SMALL)
sessions.LOCAL["spark.speculation"] = "true"
sessions.LOCAL["spark.speculation.interval"] = "50ms"
sessions.LOCAL["spark.speculation.quantile"] = "0.1"


def flaky(batches):
    import pyarrow as pa
    from pyspark import TaskContext
    context = TaskContext.get()
    rows = [row for batch in batches for row in batch.to_pylist()]
    random.shuffle(rows)
    names = ("key", "body", "body_type")
    yield pa.RecordBatch.from_pydict({n: [row[n] for row in rows] for n in names})
    if context.attemptNumber() == 0 and context.getLocalProperty("streaming.sql.batchId") == "0":
        if context.partitionId() == 1:
            raise RuntimeError("the first attempt fails")
        time.sleep(3)


spark = sessions.session("sink")
spark.dataSource.register(KillingSource)
options = {"config": path, "topic": "orders"}
few = {"maxMessagesPerTrigger": 100, "split_rows": 50}
stream = spark.readStream.format("ems").options(**options, **few).load()
rows = stream.select("key", "body", "body_type").mapInArrow(
    flaky, "key string, body binary, body_type string"
)
(
    rows.writeStream.format("ems_killing")
    .options(config=path, topic="copies", checkpointLocation=checkpoint)
    .trigger(availableNow=True)
    .start()
    .awaitTermination()
)
"""


def test_each_row_is_sent_once_through_kills_failed_tasks_and_speculation(
    spawn: Spawn, option_file: Path, tmp_path: Path
) -> None:
    Topic.objects.create(name="copies")
    send_many([Outgoing("orders", number) for number in range(250)])
    sequence("default")
    copies = Message.objects.filter(partition__topic__name="copies")
    arguments = (option_file, tmp_path / "checkpoint")
    for batch, when, there in ((1, "before", 100), (1, "after", 200)):
        child = spawn(STREAM, *arguments, batch, when)
        assert child.wait(500) == -signal.SIGKILL, child.text()
        assert copies.count() == there
    spawn(STREAM, *arguments, -1, "never").succeed(500)
    sent = Counter(int(bytes(body)) for body in copies.values_list("body", flat=True))
    assert sent == Counter(range(250))
    assert not StagedMessage.objects.exists()
