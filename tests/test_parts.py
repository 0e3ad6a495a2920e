"""``make test-all`` and ``make mutants`` go on with what is not green on the commit."""

from __future__ import annotations

import argparse
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests import dev, environments, everything, tiers
from tests.lab.mutants.__main__ import AT_MOST, parts_of
from tests.lab.mutants.patches import MUTANTS
from tests.legs import Leg, _next
from tests.parts import Parts, add_arguments

IDENTITY = ["-c", "user.name=EMS", "-c", "user.email=ems@example.com"]


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *IDENTITY, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init")
    (tmp_path / ".gitignore").write_text(".*_cache/\n")
    (tmp_path / "code.py").write_text("a = 1\n")
    (tmp_path / "tests").mkdir()
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "One")
    return tmp_path


def parts(checkout: Path, names: Sequence[str] = ("a", "b")) -> Parts:
    return Parts("test-all", names, ["tests", "failed"], root=checkout)


def missing(parts: Parts, *words: str) -> list[str]:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parts.chosen(parser.parse_args(words))


def ended(parts: Parts, name: str, *failed: str) -> None:
    parts.add(name, [9, len(failed)], 90, failed=failed, green=not failed)


def test_what_is_green_on_a_commit_is_not_run_again_on_it(checkout: Path) -> None:
    run = parts(checkout)
    ended(run, "a")
    ended(run, "b", "test_x")
    assert missing(parts(checkout)) == ["b"]
    assert not parts(checkout).all_green()


def test_all_is_green_when_the_parts_of_several_runs_are(checkout: Path) -> None:
    ended(parts(checkout), "a")
    run = parts(checkout)
    ended(run, "b")
    assert run.all_green()
    assert parts(checkout).all_green()


def test_another_commit_knows_nothing_of_what_was_green(checkout: Path) -> None:
    ended(parts(checkout), "a")
    git(checkout, "commit", "--allow-empty", "-m", "Two")
    run = parts(checkout)
    assert missing(run) == ["a", "b"]
    ended(run, "b")
    assert len(list((checkout / ".pytest_cache/parts/test-all").iterdir())) == 1


@pytest.mark.parametrize("changed", ["code.py", "new.py", "tests/new.py"])
def test_with_changes_that_are_not_committed_nothing_counts_and_nothing_is_kept(
    checkout: Path, changed: str
) -> None:
    ended(parts(checkout), "a")
    (checkout / changed).write_text("b = 2\n")
    run = parts(checkout)
    assert missing(run) == ["a", "b"]
    ended(run, "a")
    ended(run, "b")
    assert run.all_green()
    assert "the work tree has changes" in "\n".join(run.conclusion())
    assert not parts(checkout).all_green()


def test_what_a_green_run_writes_at_its_end_is_no_change(checkout: Path) -> None:
    ended(parts(checkout), "a")
    (checkout / "tests" / "durations.json").write_text("{}")
    assert missing(parts(checkout)) == ["b"]


def test_a_part_during_which_the_work_tree_was_changed_says_nothing(checkout: Path) -> None:
    run = parts(checkout)
    ended(run, "b")
    (checkout / "code.py").write_text("a = 2\n")
    ended(run, "a")
    assert missing(run) == ["a"]
    git(checkout, "checkout", "code.py")
    assert missing(parts(checkout)) == ["a"]


def test_parts_may_be_chosen_and_run_again_from_the_start(checkout: Path) -> None:
    names = ["mysql/spark-1", "mysql/rest-1", "sqlite/rest-1"]
    run = parts(checkout, names)
    for name in names:
        ended(run, name)
    assert missing(run, "--part", "mysql", "--again") == names[:2]
    assert missing(parts(checkout, names)) == names[:2]
    assert missing(parts(checkout, names), "--part", "mysql/s") == names[:1]
    assert missing(parts(checkout, names), "--again") == names


def test_what_failed_before_on_the_commit_is_named_when_it_passes_later(checkout: Path) -> None:
    ended(parts(checkout), "a", "test_x")
    run = parts(checkout)
    ended(run, "a")
    ended(run, "b")
    assert run.all_green()
    assert "a passed in a later run: test_x" in "\n".join(run.conclusion())


def test_the_table_has_a_line_for_each_part_with_its_counts_and_its_commit(checkout: Path) -> None:
    run = parts(checkout, ["a", "b", "c"])
    ended(run, "a")
    ended(run, "b", "test_x")
    lines = [line.split() for line in run.table()][-3:]
    assert lines == [
        ["a", "passed", "9", "0", "1.5", run.commit],
        ["b", "FAILED", "9", "1", "1.5", run.commit],
        ["c", "NOT", "RUN"],
    ]
    assert f"1 of 3 parts are green on {run.commit}: 9 tests, 0 failed" in "\n".join(
        run.conclusion()
    )


def test_each_test_is_in_one_share() -> None:
    names = [f"tests/test_a.py::test_{number}" for number in range(100)]
    found = [
        (share, name)
        for share in ("1/3", "2/3", "3/3")
        for name in names
        if not tiers.in_another_share(name, share)
    ]
    assert sorted(name for _, name in found) == sorted(names)
    assert min(Counter(share for share, _ in found).values()) > 20
    assert not any(tiers.in_another_share(name, "") for name in names)


def test_the_parts_of_a_leg_have_all_its_folders() -> None:
    plan = everything.plan(dev.LONGEST_FIRST, [*map(dev.leg_of_django, environments.DJANGOS)])
    tests = Path(__file__).resolve().parent
    files = [str(path.relative_to(tests.parent)) for path in tests.rglob("test_*.py")]
    for db in dev.LONGEST_FIRST:
        fewer = () if db.isalpha() else tuple(f"tests/{n}/" for n in everything.OF_A_SECOND_SERVER)
        for path in (path for path in files if not fewer or path.startswith(fewer)):
            times = Counter(
                share
                for name, (folders, share) in plan.items()
                if name.startswith((f"{db}/", f"{everything.OWN_SERVERS}/"))
                and any(path == folder or path.startswith(f"{folder}/") for folder in folders)
            )
            assert set(times.values()) == {1}, path
            number = int(next(iter(times)).partition("/")[2])
            assert set(times) == {f"{at}/{number}" for at in range(1, number + 1)}
    for version in environments.DJANGOS:
        assert plan[f"Django-{version}/quick-1"] == (["tests"], "1/2")


def test_the_parts_of_a_leg_do_not_run_beside_each_other() -> None:
    whole = Leg("mysql", Path("python"), env={"EMS_TEST_DB": "mysql"})
    first, second = (whole.part(f"mysql/rest-{at}", ["tests"], f"{at}/2") for at in (1, 2))
    other = Leg("sqlite/rest-1", Path("python"))
    assert _next([second, other], [first]) is other
    assert _next([second], [first, other]) is None
    assert _next([second], [other]) is second
    whole.env["EMS_TEST_REDIS_URL"] = "redis://one"
    assert second.env is whole.env, "its servers are those of the leg"


def test_a_leg_is_what_its_parts_are(checkout: Path) -> None:
    run = parts(checkout, ["mysql/a", "mysql/b", "sqlite/a"])
    report = {"on": {"MySQL": "9.7"}, "seconds": {"tests/a": 2.0}, "failed": {}, "skipped": 1}
    for name, leg in {"mysql/a": 0, "mysql/b": 1, "sqlite/a": 5}.items():
        done = Leg(name, Path("python"), status=leg, seconds=5, report=report, may_be_empty=True)
        everything.add(run, done)
    legs = {leg.name: leg for leg in everything.legs_of([*run.known()])}
    assert not legs["mysql"].passed(at_once=True)
    assert legs["sqlite"].passed(at_once=True)
    assert (legs["mysql"].seconds, legs["mysql"].report["skipped"]) == (10, 2)
    assert "exit status 1" in run._known["mysql/b"].red_before


def test_a_part_whose_red_tests_pass_alone_is_green_and_names_them(checkout: Path) -> None:
    run = parts(checkout, ["mysql/a"])
    report = {"on": {}, "seconds": {"t": 2.0, "u": 1.0}, "failed": {"t": "red"}, "skipped": 0}
    leg = Leg("mysql/a", Path("python"), status=1, report=report)
    everything.add(run, leg)
    assert not run.all_green()
    everything.add(run, replace(leg, status_again=1))
    assert not run.all_green()
    everything.add(run, replace(leg, status_again=0))
    assert run.all_green()
    assert "mysql/a passed in a later run: t" in "\n".join(run.conclusion())
    assert [part.counts for part in run.known()] == [[2, 0, 0]]
    assert all(leg.passed(at_once=True) for leg in everything.legs_of([*run.known()]))


def test_each_mutant_is_in_one_part_and_no_part_is_long() -> None:
    found = parts_of(MUTANTS)
    assert Counter(m.name for some in found.values() for m in some) == Counter(
        m.name for m in MUTANTS
    )
    assert max(map(len, found.values())) <= AT_MOST
