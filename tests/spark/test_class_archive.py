"""A brief JVM maps the classes that an earlier one has kept, and never those of another Java."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyspark
import pytest

from sparkjobs import jvm
from sparkjobs.class_archive import ClassArchive

pytestmark = pytest.mark.any_database


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java, and a folder for the cache, of the test."""
    java = tmp_path / "java-17" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def written(by: ClassArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a JVM of this process write the file at its end."""
    option = by.options(writes=True).split()[-1]
    new = Path(option.removeprefix("-XX:ArchiveClassesAtExit="))
    monkeypatch.setattr(jvm, "end", lambda spark, patience: bool(new.write_text("classes")))
    no_spark: Any = None
    by.keep(no_spark)


def age(file: Path, days: float) -> None:
    then = time.time() - days * 24 * 3600
    os.utime(file, (then, then))


def test_the_first_one_that_is_repeated_writes_it_and_the_next_ones_use_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand = ClassArchive()
    assert by_hand.options(writes=False) == ""
    assert by_hand.path is not None
    written(ClassArchive(), monkeypatch)
    assert by_hand.path.read_text() == "classes"
    for writes in (False, True):
        assert f"-XX:SharedArchiveFile={by_hand.path}" in ClassArchive().options(writes=writes)
    # It is there: no JVM is waited for.
    monkeypatch.setattr(jvm, "end", None)
    no_spark: Any = None
    ClassArchive().keep(no_spark)


def test_two_environments_of_a_user_have_a_file_each(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One must not delete the file of the other: both would write theirs again each minute."""
    written(ClassArchive(), monkeypatch)
    first = pyspark.__file__
    monkeypatch.setattr(pyspark, "__file__", "/venv/shop/pyspark/__init__.py")
    assert "SharedArchiveFile" not in ClassArchive().options(writes=False)
    written(ClassArchive(), monkeypatch)
    for package in (first, pyspark.__file__):
        monkeypatch.setattr(pyspark, "__file__", package)
        assert "SharedArchiveFile" in ClassArchive().options(writes=True)


def test_another_java_or_spark_has_another_file_and_the_old_one_goes_when_nobody_uses_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(ClassArchive(), monkeypatch)
    folder = home / "cache" / "django-ems"
    (old,) = folder.iterdir()
    java = home / "java-17" / "bin" / "java"
    java.unlink()
    java.touch()
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    updated = ClassArchive()
    assert updated.path not in (old, None)
    monkeypatch.delenv("SPARK_HOME")
    assert ClassArchive().path not in (old, updated.path)
    written(updated, monkeypatch)
    assert set(folder.iterdir()) == {old, updated.path}
    killed = folder / "spark-0123.4711"
    killed.touch()
    assert updated.path is not None
    days = {old: 6, updated.path: 6, killed: 0.5}
    for file, ago in days.items():
        age(file, ago)
    ClassArchive().options(writes=False)
    assert set(folder.iterdir()) == {old, updated.path, killed}
    for file in days:
        age(file, 8 if file.suffix == ".jsa" else 2)
    updated.options(writes=False)  # it is used: just now
    assert set(folder.iterdir()) == {updated.path}


def test_one_jvm_in_a_day_tries_to_write_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that cannot is not waited for each minute; nor do two write it at once."""
    first, second = ClassArchive(), ClassArchive()
    assert "ArchiveClassesAtExit" in first.options(writes=True)
    assert second.options(writes=True) == ""
    ends = iter([False])
    monkeypatch.setattr(jvm, "end", lambda spark, patience: next(ends))
    no_spark: Any = None
    second.keep(no_spark)  # it has not tried: it does not wait
    half = home / "cache" / "django-ems" / f"{first.path and first.path.stem}.{os.getpid()}"
    half.write_text("half of the cla")
    first.keep(no_spark)
    assert not half.exists()
    assert ClassArchive().options(writes=True) == ""
    (tried,) = half.parent.iterdir()
    age(tried, 1.1)
    assert "ArchiveClassesAtExit" in ClassArchive().options(writes=True)


def test_a_folder_that_others_may_write_to_is_not_used(home: Path) -> None:
    assert ClassArchive().path is not None
    (home / "cache" / "django-ems").chmod(0o777)
    assert ClassArchive().path is None
    assert ClassArchive().options(writes=True) == ""


def test_without_java_or_a_home_there_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "java-17" / "bin" / "java"))  # no folder
    assert ClassArchive().path is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    assert ClassArchive().path is None
    monkeypatch.setenv("HOME", str(home))
    path = ClassArchive().path
    assert path is not None
    assert path.parent == home / ".cache" / "django-ems"
    monkeypatch.setenv("JAVA_HOME", str(home / "none"))
    assert ClassArchive().path is None
