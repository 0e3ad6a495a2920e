"""Provides one Spark session for all tests of the jobs, since it takes five seconds to start.

Where the database does not matter a test is marked ``any_database``: it runs in one leg only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjobs.config import Config

# Without pyspark the modules could not even be collected.
collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py"]

# The first one starts the session, which takes its time on a busy machine.
TIMEOUT_SECONDS = 300

Read = Callable[..., "DataFrame"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.slow)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from sparkjobs import session as sessions
    from tests.spark.small import SMALL

    folder = tmp_path_factory.mktemp("spark")
    places = {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(sessions.MASTER, "local[2]")
        for name, value in {**SMALL, **places}.items():
            patch.setitem(sessions.LOCAL, name, value)
        session = sessions.session("tests")
        yield session
        session.stop()


@pytest.fixture
def option_file(transactional_db: None, tmp_path: Path) -> Path:
    """Return the option file of this run's database; its archive is a folder of the test."""
    from django.db import connections

    path = tmp_path / "ems.cnf"
    path.touch(mode=0o600)
    path.write_text(options_for(connections["default"].settings_dict, tmp_path / "archive"))
    return path


def options_for(database: dict[str, Any], archive: Path) -> str:
    if database["ENGINE"].endswith("sqlite3"):
        return f"[ems]\nvendor=sqlite\npath={database['NAME']}\narchive={archive}\n"
    host = database["HOST"]
    address = f"socket={host}" if host.startswith("/") else f"host={host}\nport={database['PORT']}"
    account = f"user={database['USER']}\npassword={database['PASSWORD']}"
    client = f"[client]\n{address}\n{account}\ndatabase={database['NAME']}\n"
    return f"{client}[ems]\nvendor=mysql\narchive={archive}\n"


@pytest.fixture
def config(option_file: Path) -> Config:
    from sparkjobs.config import Config

    return Config.load(str(option_file))


@pytest.fixture
def read(spark: SparkSession, config: Config) -> Read:
    """Load the source: ``read(topic="orders", columns=["offset"])``."""
    from sparkjobs.source.schemas import only
    from sparkjobs.source.tables import TABLES

    def load(
        table: str = "messages", columns: list[str] | str | None = None, **options: object
    ) -> Any:
        reader = spark.read.format("ems").option("config", config.path).option("table", table)
        if isinstance(columns, str):
            reader = reader.option("columns", columns)
        elif columns is not None:
            reader = reader.schema(only(TABLES[table].schema, *columns))
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    return load


@pytest.fixture
def connection(config: Config) -> Iterator[Any]:
    """Yield a connection of the jobs."""
    from sparkjobs.database import connected

    with connected(config) as opened:
        yield opened


@pytest.fixture
def roll(spark: SparkSession, config: Config, connection: Any) -> Callable[..., None]:
    """Run the roll-ups of these names once in this process, all of them by default."""
    from sparkjobs.jobs.backlog import roll_up_backlog
    from sparkjobs.jobs.consumption import roll_up_consumption
    from sparkjobs.jobs.traffic import roll_up_traffic

    known = {
        "traffic": roll_up_traffic,
        "consumption": roll_up_consumption,
        "backlog": roll_up_backlog,
    }

    def run(*names: str) -> None:
        for name in names or known:
            known[name](spark, config, connection, lambda text: None)

    return run
