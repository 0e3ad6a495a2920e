"""procrastinate on PostgreSQL, with the periodic task of its manual that finds stalled jobs."""

from __future__ import annotations

from typing import Any

from procrastinate import App, JobContext, PsycopgConnector, SyncPsycopgConnector

from tests.lab.peers.apps.common import THREADS, URL, handle, main, run_worker

app = App(connector=PsycopgConnector(conninfo=URL))


@app.task(name="note")
def note(message: dict[str, Any]) -> None:
    handle(message)


@app.periodic(cron="* * * * *")
@app.task(queueing_lock="stalled", pass_context=True)
async def retry_stalled(context: JobContext, timestamp: int) -> None:
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=15):
        await app.job_manager.retry_job(job)


def setup() -> None:
    with App(connector=SyncPsycopgConnector(conninfo=URL)).open() as sync:
        sync.schema_manager.apply_schema()


def work(kind: str) -> None:
    run_worker(
        *("-m", "procrastinate", "--app=tests.lab.peers.apps.procrastinate_program.app", "worker"),
        f"--concurrency={THREADS}",
    )


if __name__ == "__main__":
    sync = SyncPsycopgConnector(conninfo=URL)
    with app.replace_connector(sync) as sending, sending.open():
        deferred = sending.tasks["note"]
        main(lambda message: deferred.defer(message=message), work, setup)
