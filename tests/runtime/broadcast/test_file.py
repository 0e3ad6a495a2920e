"""Positions on the disk: whole or not at all, and one process's at a time."""

from __future__ import annotations

import errno
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from streams.errors import NameTaken, PositionDamaged, StateUnusable
from streams.process.broadcast.file import Place, PositionFile
from streams.process.broadcast.position import Position

PLACE = Place("shop", "prices", "cache", "default")
NOON = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture
def opened(tmp_path):
    files = []

    def open_(place=PLACE, directory=tmp_path / "state"):
        files.append(PositionFile(directory, place))
        return files[-1]

    yield open_
    for file in files:
        file.close()


def test_a_new_client_has_no_positions(opened):
    file = opened()
    assert not file.taken
    assert file.known == {}
    assert not file.path.exists()


def test_what_is_saved_is_found_by_the_next_process(opened):
    file = opened()
    file.known = {0: Position(7, 99, NOON), 12: Position(0)}
    file.save()
    file.close()
    again = opened()
    assert again.taken
    assert again.known == {0: Position(7, 99, NOON), 12: Position(0)}


def test_positions_without_partitions_are_positions(opened):
    file = opened()
    file.save()
    file.close()
    assert opened().taken


@pytest.mark.parametrize("field", ["database", "topic", "group", "name"])
def test_each_database_topic_group_and_name_has_a_file_of_its_own(opened, field):
    file = opened()
    file.known = {0: Position(7)}
    file.save()
    other = opened(Place(**{**vars(PLACE), field: "another"}))
    assert other.path != file.path
    assert not other.taken


def test_names_that_look_the_same_in_a_files_name_do_not_share_a_file(opened):
    one = opened(Place("shop", "a/b", "cache", "default"))
    other = opened(Place("shop", "a:b", "cache", "default"))
    assert one.path != other.path


@pytest.mark.parametrize("name", ["../../etc", "/", "ü" * 127, "a b", "\\", "…"])
def test_any_name_makes_a_file_in_the_directory(opened, tmp_path, name):
    file = opened(Place(name, name, name, name))
    file.save()
    assert file.path.parent == tmp_path / "state"
    assert file.path.exists()


def test_a_second_process_of_one_name_is_refused_and_told_who_has_it(opened):
    opened()
    with pytest.raises(NameTaken, match=rf"{os.getpid()}.*'default'.*--name"):
        opened()


def test_a_name_that_was_refused_is_still_the_first_ones(opened):
    file = opened()
    with pytest.raises(NameTaken):
        opened()
    with pytest.raises(NameTaken):
        opened()
    file.close()
    opened()


def test_a_child_that_is_forked_does_not_hold_the_name(opened):
    file = opened()
    ready, go = os.pipe()
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        os.write(go, b".")
        os.read(told, 1)
        os._exit(0)
    try:
        os.read(ready, 1)  # it has forgotten the lock by now
        file.close()
        opened()
    finally:
        os.write(tell, b".")
        os.waitpid(child, 0)
        for fd in (ready, go, told, tell):
            os.close(fd)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "null",
        '"x"',
        "\0" * 100,
        "[" * 100_000,
        json.dumps({"version": 1}),
        json.dumps({"version": 2, **vars(PLACE), "partitions": {}}),
        json.dumps({"version": 1, **vars(PLACE), "name": "other", "partitions": {}}),
        json.dumps({"version": 1, **vars(PLACE), "partitions": {"x": {}}}),
        json.dumps({"version": 1, **vars(PLACE), "partitions": {"0": 7}}),
        json.dumps({"version": 1, **vars(PLACE), "partitions": {"0": {"offset": 7}}}),
        *(
            json.dumps(
                {
                    "version": 1,
                    **vars(PLACE),
                    "partitions": {
                        "0": {"offset": 7, "message_id": 1, "sequenced_at": None, **damage}
                    },
                }
            )
            for damage in (
                {"offset": -1},
                {"offset": "7"},
                {"offset": 7.5},
                {"offset": True},
                {"offset": None},
                {"message_id": "7"},
                {"sequenced_at": 7},
                {"sequenced_at": "noon"},
                {"sequenced_at": "2026-11-20T12:00:00"},
            )
        ),
    ],
    ids=lambda text: repr(text[-40:]),
)
def test_a_damaged_file_is_an_error_that_names_it_and_is_left_as_it_is(opened, text):
    file = opened()
    file.save()
    file.close()
    file.path.write_text(text)
    with pytest.raises(PositionDamaged, match=file.path.name):
        opened()
    assert file.path.read_text() == text
    file.path.unlink()
    assert not opened().taken  # the name was free again


def test_a_crash_while_writing_leaves_the_old_positions(opened, monkeypatch):
    file = opened()
    file.known = {0: Position(7)}
    file.save()

    def crash(fd):
        raise KeyboardInterrupt

    file.known = {0: Position(8)}
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(KeyboardInterrupt):
            file.save()
    file.close()
    again = opened()
    assert again.known == {0: Position(7)}
    again.known = {0: Position(9)}
    again.save()
    again.close()
    assert opened().known == {0: Position(9)}


def test_the_new_positions_are_on_the_disk_before_they_have_the_name(opened, monkeypatch):
    file = opened()
    done = []
    sync, replace = os.fsync, Path.replace

    def note_sync(fd):
        done.append(("on the disk", os.fstat(fd).st_ino))
        sync(fd)

    def note_replace(self, target):
        done.append(("named", self.stat().st_ino))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_replace)
    file.save()
    new, folder = file.path.stat().st_ino, file.path.parent.stat().st_ino
    assert done == [("on the disk", new), ("named", new), ("on the disk", folder)]


def test_a_full_disk_is_a_clear_error(opened, monkeypatch):
    file = opened()

    def full(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateUnusable, match=r"STATE_DIR.*No space left on device"):
        file.save()


@pytest.mark.parametrize("directory", ["file/state", "file"])
def test_a_directory_that_cannot_be_made_is_a_clear_error(opened, tmp_path, directory):
    (tmp_path / "file").touch()
    with pytest.raises(StateUnusable, match="STATE_DIR"):
        opened(directory=tmp_path / directory)


def test_a_file_system_without_locks_is_a_clear_error(opened, monkeypatch):
    def refuse(fd, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(StateUnusable, match="No locks available"):
        opened()


def test_the_file_says_whose_it_is(opened):
    file = opened()
    file.known = {0: Position(7, 99, NOON)}
    file.save()
    assert json.loads(file.path.read_text()) == {
        "version": 1,
        "database": "shop",
        "topic": "prices",
        "group": "cache",
        "name": "default",
        "partitions": {
            "0": {
                "offset": 7,
                "message_id": 99,
                "sequenced_at": "2026-11-20T12:00:00.123456+00:00",
            }
        },
    }


@pytest.mark.parametrize("name", ["", " left", "left\n", "x" * 128])
def test_a_name_that_could_not_be_told_again_is_refused_by_the_command(name):
    with pytest.raises(CommandError, match="name"):
        call_command("ems_consume", f"--name={name}")
