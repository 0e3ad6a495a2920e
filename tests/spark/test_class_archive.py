"""A brief JVM maps the classes that an earlier one has kept, and never those of another Java."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    """Let the JVM of this process write the file at its end."""
    option = by.options(writes=True).split()[-1]
    new = Path(option.removeprefix("-XX:ArchiveClassesAtExit="))
    monkeypatch.setattr(jvm, "end", lambda spark, patience: new.write_text("classes"))
    no_spark: Any = None
    by.keep(no_spark)


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


def test_another_java_has_another_file_and_the_old_one_goes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(ClassArchive(), monkeypatch)
    killed = home / "cache" / "django-ems" / "spark-0123.4711"
    killed.touch()
    java = home / "java-17" / "bin" / "java"
    java.unlink()
    java.touch()
    updated = ClassArchive()
    assert "SharedArchiveFile" not in updated.options(writes=True)
    written(updated, monkeypatch)
    assert list(killed.parent.iterdir()) == [updated.path]


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
