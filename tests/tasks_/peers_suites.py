"""Names the suites of others, what is rewritten in them, and what deviates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.sdists import Sdist
from tests.tasks_.peers_files import File


@dataclass(frozen=True)
class Suite:
    """A suite of others: its files by name, and which of its tests fail, each with the reason."""

    backend: str
    files: Mapping[str, File]
    at_least: int  # tests that pass
    deviations: Mapping[str, str]
    # Classes and tests that are not run, by the reason: most are not about tasks.
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)


DJANGO = Sdist(
    "django", "6.0.10", "6005d030df924f85088454c18bd35dcf082b058aa355ad3df520d8de9aef9f41"
)
TASKS_DB = Sdist(
    "django_tasks_db", "0.13.0", "09630d417cf722b07e1439b837403e18e86455908ba532fa6795b0d23dc3ff23"
)

SHIMS = "tests.tasks_.shims"
# The tests of a backend without tables need no database.
TABLES = (r"\bSimpleTestCase\b", "TestCase")
APPS = (r"available_apps = \[\]", "available_apps = None")
DUMMY = [
    TABLES,
    (r"django\.tasks\.backends\.dummy\.DummyBackend", f"{SHIMS}.Keeping"),
    (
        r"from django\.tasks\.backends\.dummy import DummyBackend",
        f"from {SHIMS} import Keeping as DummyBackend",
    ),
]
IMMEDIATE = [
    TABLES,
    (r"django\.tasks\.backends\.immediate\.ImmediateBackend", f"{SHIMS}.Draining"),
    (
        r"from django\.tasks\.backends\.immediate import ImmediateBackend",
        f"from {SHIMS} import Draining as ImmediateBackend",
    ),
]
IN_ASYNC = "it looks into the tables in async code, without await: there Django allows no query"
CHANGES = "it changes the dummy's list of results; here they are rows"
NOT_OURS = "it says that Django's ImmediateBackend has no results; this one has"

OF_DJANGO = Suite(
    f"{SHIMS}.Keeping",
    {
        "tasks.py": File(DJANGO, "tests/tasks/tasks.py"),
        "test_tasks.py": File(DJANGO, "tests/tasks/test_tasks.py", DUMMY),
        "test_dummy_backend.py": File(DJANGO, "tests/tasks/test_dummy_backend.py", [*DUMMY, APPS]),
        "test_immediate_backend.py": File(
            DJANGO, "tests/tasks/test_immediate_backend.py", [*IMMEDIATE, APPS]
        ),
    },
    60,
    {
        "TaskTestCase.test_enqueue_task_async": IN_ASYNC,
        "TaskTestCase.test_refresh_result": IN_ASYNC,
        "DummyBackendTestCase.test_enqueue_task_async": IN_ASYNC,
        "DummyBackendTestCase.test_refresh_result": CHANGES,
        "DummyBackendTestCase.test_refresh_result_async": CHANGES,
        "ImmediateBackendTestCase.test_cannot_get_result": NOT_OURS,
        "ImmediateBackendTestCase.test_cannot_refresh_result": NOT_OURS,
        "ImmediateBackendTestCase.test_cannot_pass_run_after": "run_after is supported",
    },
)

SHIM = "tests.tasks_.tasks_db"
OUR_BACKEND = [
    # Its imports of itself, and of the tasks that are not in its source distribution.
    (
        r"^from django_tasks_db import[\s\S]*?^from tests import tasks",
        f"from {SHIM} import *\nfrom tasks import tasks",
    ),
    (r'"tests\.tasks\.', '"tasks.tasks.'),
    (r"django_tasks_db\.DatabaseBackend", f"{SHIM}.DatabaseBackend"),
    # It counts the statements of its worker and of its commands. That an enqueue is one stays,
    # where the topic is there: the first enqueue of all makes it.
    (r"with self\.assertNumQueries\((?!1\)).*\):$", "with contextlib.nullcontext():"),
    (r"^(class DatabaseBackendTestCase\(.*)$", r"\1\n    setUp = enqueue_first"),
    # The ids are those of messages.
    (
        r"self\.assertEqual\(uuid\.UUID\(result\.id\)\.version, 4\)",
        "self.assertLessEqual(len(result.id), 64)",
    ),
    # These are the words of the package, of Django, and of EMS.
    (r'"django_tasks_db", errors', '"streams.contrib.tasks", errors'),
    (r"is not JSON serializable", "Unsupported type"),
    (
        r'f"Task {db_task_result\.id} does not point to a Task \({(db_task_result\.task_path)}\)"',
        r'f"{\1} is not a task."',
    ),
]
OUR_WORKER = [
    (r'"manage",\s+"db_worker"', '"tests.tasks_.peers_worker"'),
    (r"tests\.db_worker_test_settings", "tests.settings"),
    (r'"IN_TEST": ""', "**CHILD"),
    (r'"gracefully"', '"Stopped."'),
    # It waits for a time, in which a worker of its own is up.
    (r"time\.sleep\(self\.WORKER_STARTUP_TIME\)", "wait_until_it_runs()"),
    (r"process\.wait\(timeout=[\d.]+\)", "process.wait(timeout=60)"),
    # It gives its workers their ids.
    (r"self\.assertEqual\((.*\.worker_ids), \[worker_id\]\)", r"self.assertEqual(len(\1), 1)"),
    # There a killed task is RUNNING for ever; here it ends.
    (
        r"# TODO: .*\n( +self\.assertEqual\(result\.status, TaskResultStatus\.)RUNNING",
        r"end_what_died()\n        result.refresh()\n\1FAILED",
    ),
]
OF_TASKS_DB = Suite(
    f"{SHIM}.DatabaseBackend",
    {
        "tasks.py": File(DJANGO, "tests/tasks/tasks.py", [("This Task", "This task")]),
        "test_tasks_db.py": File(TASKS_DB, "tests/tests.py", [*OUR_BACKEND, *OUR_WORKER]),
    },
    40,
    {
        "DatabaseBackendTestCase.test_get_result": (
            "a task that has not begun has no row: its result is looked up there, and then in its"
            " message, with two statements"
        ),
        "DatabaseBackendWorkerTestCase.test_run_after_priority": (
            "tasks that are due when they are enqueued run in the order of the enqueues, and not of"
            " their run_after"
        ),
        "DatabaseWorkerProcessTestCase.test_keyboard_interrupt_task": (
            "a task that raises KeyboardInterrupt ends its worker with status 1, and has failed"
            " when the lease has expired"
        ),
        "DatabaseWorkerProcessTestCase.test_repeat_ctrl_c": (
            "the second Ctrl-C ends the worker with status 1, and the task has failed when the"
            " lease has expired"
        ),
    },
    {
        "they look at the columns, the indexes and the migrations of its model": [
            "CompatTestCase",
            "DatabaseTaskResultTestCase",
            "ConnectionExclusiveTranscationTestCase",
            "DBTaskResultOrderingTestCase",
            "DatabaseBackendTestCase::test_index_scan_for_ready",
            "DatabaseBackendTestCase::test_priority_range_check",
            "DatabaseBackendTestCase::test_run_after_null_0016_migration",
            "DatabaseBackendTestCase::test_task_name",
        ],
        "it locks a row, which workers there pass over; here it holds up the log of the queue": [
            "DatabaseBackendWorkerTestCase::test_worker_with_locked_rows"
        ],
        "they look at its pages in the admin": ["AdminTestCase"],
        "they look at its option id_function": [
            "DatabaseBackendTestCase::test_custom_id_function",
            "DatabaseBackendTestCase::test_unknown_id_function",
            "DatabaseBackendTestCase::test_postgres_db_id_function",
            "DatabaseBackendTestCase::test_postgres_id_function_expression",
        ],
        "they look at its command that deletes old results": [
            "DatabaseBackendPruneTaskResultsTestCase"
        ],
        "they look at the options and the output of its command db_worker": [
            f"DatabaseBackendWorkerTestCase::test_{name}"
            for name in (
                "unknown_backend",
                "incorrect_backend",
                "negative_interval",
                "infinite_interval",
                "fractional_interval",
                "zero_interval",
                "negative_max_tasks",
                "zero_max_tasks",
                "too_long_worker_id",
                "empty_worker_id",
                "exclude_queues_requires_processing_all_queues",
                "max_tasks",
                "verbose_logging",
            )
        ],
    },
)
SUITES = {"django": OF_DJANGO, "django-tasks-db": OF_TASKS_DB}
