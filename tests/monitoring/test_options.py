"""The option file hands the settings of the database over whole, to its owner only."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from django.db import connection, connections

from monitoring.options import option_file, option_folder, options_of
from sparkjobs.config import Config
from sparkjobs.database import connected, fetch

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORDS = [
    "plain",
    "",
    "#;=[x]",
    "a b",
    " blanks ",
    "quo\"te's",
    "back\\slash\\n",
    "50 %(x)s",
    "né",
]


def test_only_its_owner_can_read_it_and_it_is_gone_at_the_end() -> None:
    with pytest.raises(RuntimeError), option_file("default") as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        kept = path
        raise RuntimeError
    assert not kept.exists()


@pytest.mark.parametrize("alias", ["default", "other"])
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_job_reaches_the_database_of_the_alias(alias: str) -> None:
    with option_file(alias) as path, connected(Config.load(str(path))) as opened:
        if connection.vendor == "sqlite":
            ((_number, _name, file),) = fetch(opened, "PRAGMA database_list")
            assert file == str(Path(connections[alias].settings_dict["NAME"]).resolve())
        else:
            assert fetch(opened, "SELECT DATABASE()") == [
                (connections[alias].settings_dict["NAME"],)
            ]


@pytest.mark.mysql
@pytest.mark.parametrize("password", PASSWORDS)
def test_whatever_is_in_a_password_is_handed_over(password: str, monkeypatch) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP USER IF EXISTS ems_spark")
        cursor.execute("CREATE USER ems_spark IDENTIFIED BY %s", [password])
        name = connection.settings_dict["NAME"]
        cursor.execute(f"GRANT ALL ON `{name}`.* TO ems_spark")
    try:
        monkeypatch.setitem(connection.settings_dict, "USER", "ems_spark")
        monkeypatch.setitem(connection.settings_dict, "PASSWORD", password)
        with option_file("default") as path, connected(Config.load(str(path))) as opened:
            ((user,),) = fetch(opened, "SELECT CURRENT_USER()")
            assert user.startswith("ems_spark@")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP USER ems_spark")


@pytest.mark.mysql
def test_an_option_file_of_the_project_is_included(tmp_path: Path, monkeypatch) -> None:
    theirs = tmp_path / "my.cnf"
    given = connection.settings_dict
    theirs.write_text(
        f"[client]\nhost={given['HOST']}\nport={given['PORT']}\nuser={given['USER']}\n"
        f"password={given['PASSWORD']}\n"
    )
    for name in ("USER", "PASSWORD", "HOST", "PORT"):
        monkeypatch.setitem(given, name, "")
    monkeypatch.setitem(given, "OPTIONS", {"read_default_file": str(theirs)})
    with option_file("default") as path, connected(Config.load(str(path))) as opened:
        assert fetch(opened, "SELECT DATABASE()") == [(given["NAME"],)]


def test_the_archive_is_a_folder_or_a_url(ems_settings, monkeypatch, tmp_path: Path) -> None:
    assert "archive" not in options_of("default")
    monkeypatch.chdir(tmp_path)
    ems_settings(ARCHIVE="kept")
    assert f"archive={tmp_path / 'kept'}\n" in options_of("default")
    ems_settings(ARCHIVE="s3a://bucket/ems")
    assert "archive=s3a://bucket/ems\n" in options_of("default")


# -- shards --------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_the_files_of_several_databases_are_in_a_folder_that_only_its_owner_can_read(
    ems_settings,
) -> None:
    ems_settings(SHARDS={"clicks": "other"}, ARCHIVE="/srv/ems")
    with option_folder(["default", "other"]) as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
        configs = Config.load_all(str(folder))
        assert [(config.alias, config.shard) for config in configs] == [
            *(("default", ""), ("other", "other"))
        ]
        assert {config.archive for config in configs} == {"/srv/ems"}
        for config in configs:
            with connected(config) as opened:
                assert fetch(opened, "SELECT COUNT(*) FROM `ems_topic` t") == [(0,)]
    assert not folder.exists()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_without_shards_a_file_says_what_it_always_said(ems_settings) -> None:
    """Also that of another alias, whose archive stays where it is."""
    given = options_of("other")
    assert "shard" not in given
    assert "connect-timeout" not in given
    ems_settings(SHARDS={"clicks": "other"})
    assert "shard=other\n" in options_of("other")
    assert "shard" not in options_of("default")


@pytest.mark.mysql
@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_database_that_is_away_holds_up_the_others_for_seconds_only(
    ems_settings, monkeypatch
) -> None:
    """What the project says is stronger."""
    ems_settings(SHARDS={"clicks": "other"})
    assert options_of("other").count("connect-timeout=10\n") == 1
    options = connections["other"].settings_dict.setdefault("OPTIONS", {})
    monkeypatch.setitem(options, "connect_timeout", 3)
    before, after = options_of("other").split("connect-timeout=10\n")
    assert "connect-timeout" not in before
    assert 'connect-timeout="3"\n' in after
