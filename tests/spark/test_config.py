"""The option file says how to reach the database; what is secret in it goes nowhere else."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from sparkjobs.config import VARIABLE, Config
from sparkjobs.database import connected, execute, fetch, transaction, vendor_of
from sparkjobs.errors import BadConfig
from streams.models import SystemConfig

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.any_database
def test_a_file_that_says_too_little_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for text, said in (
        (None, "No such file"),
        ("[client]\nhost=db\n", "vendor must be mysql or sqlite"),
        ("[ems]\nvendor=oracle\n", "vendor must be"),
        ("[ems]\nvendor=sqlite\n", "path must name the SQLite file"),
        ("vendor=mysql\n", "no section headers"),
    ):
        path = tmp_path / "ems.cnf"
        path.unlink(missing_ok=True)
        if text:
            path.write_text(text)
        with pytest.raises(BadConfig, match=said):
            Config.load(str(path))
    with pytest.raises(BadConfig, match=f"--config PATH, or {VARIABLE}"):
        Config.load()


@pytest.mark.any_database
def test_the_file_is_found_by_the_environment_and_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ems.cnf").write_text("[ems]\nvendor=mysql\narchive=s3a://a/%b\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, "ems.cnf")
    config = Config.load()
    assert (config.path, config.archive) == (str(tmp_path / "ems.cnf"), "s3a://a/%b")


@pytest.mark.any_database
def test_a_mounted_secret_keeps_the_path_that_all_hosts_have(tmp_path: Path) -> None:
    """Kubernetes mounts it by symlinks into a folder that has another name in every pod."""
    folder = tmp_path / "..2026_11_21_22_00_00.1"
    folder.mkdir()
    (folder / "ems.cnf").write_text("[ems]\nvendor=mysql\n")
    (tmp_path / "..data").symlink_to(folder.name)
    (tmp_path / "ems.cnf").symlink_to("..data/ems.cnf")
    assert Config.load(str(tmp_path / "ems.cnf")).path == str(tmp_path / "ems.cnf")


@pytest.mark.any_database
def test_a_password_is_in_no_plan_and_in_nothing_that_is_sent_to_executors(
    spark: Any, tmp_path: Path
) -> None:
    from sparkjobs.source.datasource import EmsReader
    from sparkjobs.source.request import SourceRequest
    from sparkjobs.source.schemas import MESSAGES

    path = tmp_path / "ems.cnf"
    path.write_text("[client]\nhost=127.0.0.1\npassword=s3kr1t\n[ems]\nvendor=mysql\n")
    reader = EmsReader(SourceRequest.of({"config": str(path)}), MESSAGES)
    assert b"s3kr1t" not in pickle.dumps(reader)
    frame = spark.read.format("ems").option("config", str(path)).load()
    assert "s3kr1t" not in frame._jdf.queryExecution().toString()


@pytest.mark.mysql
def test_the_mysql_client_reads_its_part_itself_also_a_password_with_special_characters(
    config: Config, tmp_path: Path
) -> None:
    password = "a#b;c'd%e\\\\f g"  # two characters for each backslash, as in every my.cnf
    with connected(config) as connection:
        execute(connection, "DROP USER IF EXISTS 'ems_odd'@'%%'")
        execute(connection, "CREATE USER 'ems_odd'@'%%' IDENTIFIED BY %s", ["a#b;c'd%e\\f g"])
        execute(connection, "GRANT SELECT ON *.* TO 'ems_odd'@'%%'")
    try:
        text = Path(config.path).read_text().replace("user=root", "user=ems_odd")
        odd = tmp_path / "odd.cnf"
        odd.write_text(text.replace("password=", f'password="{password}"'))
        with connected(Config.load(str(odd))) as connection:
            assert fetch(connection, "SELECT 'a%%b', %s", ["c%d"]) == [("a%b", "c%d")]
    finally:
        with connected(config) as connection:
            execute(connection, "DROP USER 'ems_odd'@'%%'")


@pytest.mark.mysql
def test_a_session_is_in_utc_and_reads_what_is_committed(config: Config) -> None:
    with connected(config) as connection:
        assert fetch(connection, "SELECT TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW())") == [(0,)]
        level = (
            "@@transaction_isolation" if os.environ["EMS_TEST_DB"] == "mysql" else "@@tx_isolation"
        )
        assert fetch(connection, f"SELECT {level}") == [("READ-COMMITTED",)]


def test_a_transaction_is_whole_and_an_update_tells_what_it_matched(config: Config) -> None:
    SystemConfig.objects.create(name="orders", value=1)
    rename = "UPDATE `ems_system_config` SET `name` = %s WHERE `name` = %s"
    with connected(config) as connection:
        with pytest.raises(ZeroDivisionError), transaction(connection):
            assert execute(connection, rename, ["x", "orders"]) == 1
            raise ZeroDivisionError
        assert SystemConfig.objects.filter(name="orders").exists()
        with transaction(connection):
            assert execute(connection, rename, ["orders", "orders"]) == 1  # matched, not changed
            assert execute(connection, rename, ["x", "nothing"]) == 0
        assert vendor_of(connection) == config.vendor


@pytest.mark.any_database
@pytest.mark.parametrize("namespace", ["x' OR '1' = '1", "Blue", "a%s", "a" * 17, "blue\n"])
def test_a_namespace_that_is_none_is_refused_wherever_it_is_said(
    namespace: str, tmp_path: Path
) -> None:
    from sparkjobs.sink.options import SinkOptions
    from sparkjobs.source.request import SourceRequest

    path = tmp_path / "ems.cnf"
    options = {"config": str(path), "namespace": namespace}
    path.write_text("[ems]\nvendor=sqlite\npath=x\n")
    for given in (SourceRequest.of(options), SinkOptions.of(options)):
        with pytest.raises(BadConfig, match="namespace must be at most 16 of the characters"):
            given.configuration()
    if namespace.strip() == namespace:
        path.write_text(f"[ems]\nvendor=sqlite\npath=x\nnamespace={namespace}\n")
        with pytest.raises(BadConfig, match="namespace must be at most 16 of the characters"):
            Config.load(str(path))


@pytest.mark.any_database
def test_a_wrong_sqlite_path_makes_no_new_database(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.sqlite3"
    with (
        pytest.raises(Exception, match="unable to open"),
        connected(Config("ems.cnf", "sqlite", str(path))),
    ):
        pass
    assert not path.exists()
