"""The pages of the benchmarks show what was measured: no figure is written by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from tests.docs.documents import DOCS
from tests.lab.benchmarks import __main__ as benchmarks
from tests.lab.benchmarks import kept, pictures, plan, server, tables
from tests.lab.benchmarks.charts import charts
from tests.lab.benchmarks.consume.bounds import BOUNDS
from tests.lab.benchmarks.consume.cost import commits_that_write, far_behind
from tests.lab.benchmarks.consume.log import FIRST
from tests.lab.benchmarks.consume.processes import LINES
from tests.lab.benchmarks.figures import Options, Row
from tests.lab.benchmarks.growth.axes import compared
from tests.lab.benchmarks.growth.counting import Count
from tests.lab.benchmarks.sustained import rate
from tests.lab.benchmarks.sustained.rate import bounded
from tests.lab.benchmarks.svg import WIDTH, Bars, Lines

FOLDER = DOCS / "about" / "benchmarks"
PICTURES = sorted(charts())
BEGIN, COMMIT = "SET autocommit=0", "COMMIT"
SETTLE = "UPDATE `ems_topic_group_log` SET `state` = 'DONE' WHERE `id` = 1"


@pytest.mark.parametrize("path", pictures.rendered(), ids=lambda path: path.name)
def test_pictures_and_tables_are_made_of_the_kept_figures(path: Path) -> None:
    text = pictures.rendered()[path]
    assert path.read_text() == text, "python -m tests.lab.benchmarks.pictures"


@pytest.mark.parametrize("page", pictures.PAGES)
def test_a_figure_outside_of_a_made_table_says_that_it_was_measured_once(page: str) -> None:
    text = pictures.BLOCK.sub("", (FOLDER / page).read_text()).partition("## Measured once")[0]
    assert not [line for line in text.splitlines() if line.startswith("|")]


def test_every_table_and_every_picture_is_on_a_page() -> None:
    text = "".join((FOLDER / page).read_text() for page in pictures.PAGES)
    assert sorted(match["name"] for match in pictures.BLOCK.finditer(text)) == sorted(tables.TABLES)
    assert sorted(re.findall(r"!\[.+\]\((.+)\.svg\)", text)) == PICTURES
    assert sorted(path.stem for path in FOLDER.glob("*.svg")) == PICTURES


@pytest.mark.parametrize("path", sorted(kept.DATA.glob("*.json")), ids=lambda path: path.stem)
def test_kept_figures_say_on_what_they_were_measured(path: Path) -> None:
    measured = json.loads(path.read_text())["measured"]
    assert {"date", "commit", "processor", "cores", "load"} <= measured.keys() or (
        path.stem == "first-ems"  # of a machine of others
    )


SAMPLES = {
    "bars": Bars(
        "A", "b", ("x", "y"), [("a long <label> of a peer", (1234.5, None)), ("b", (0, 7))]
    ),
    "lines": Lines("A", "b", ["1", "20"], [("x", (1.0, 5000.0)), ("y", (None, 2.0))], log=True),
    "linear lines": Lines("A", "b", ["1", "20"], [("x", (8.0, 55.0))]),
    "nothing": Bars("A", "b", ("x",), []),
    **charts(),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_picture_can_be_read_on_a_telephone_and_in_the_dark(name: str) -> None:
    text = SAMPLES[name].svg()
    root = ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text
    assert all(float(size) >= 12 for size in re.findall(r"font-size: ([\d.]+)px", text))
    assert root.attrib["viewBox"].split()[2] == str(WIDTH) == "380"
    space = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{space}title")
    assert root.findtext(f"{space}desc")
    for one in root.iter(f"{space}text"):
        wide = 7.2 * len(one.text or "")
        x = float(one.attrib["x"])
        begin = {"end": x - wide, "middle": x - wide / 2}.get(one.get("text-anchor", ""), x)
        assert begin >= 0, one.text
        assert begin + wide <= WIDTH, one.text


def test_a_larger_value_has_a_longer_bar() -> None:
    chart = Bars("A", "b", ("x",), [("one", (100,)), ("two", (50,)), ("none", (None,))])
    assert re.findall(r'class="a" x="8" y="\S+" width="([\d.]+)"', chart.svg()) == [
        "272.0",
        "136.0",
    ]


# -- what makes make bench fail --


def test_what_grows_fails_and_what_does_not_passes() -> None:
    before = {"a send": Count(0, 1), "an idle pass": Count(7, 2), "a look": Count(9, 1)}
    now = {"a send": Count(0, 40), "an idle pass": Count(70_000, 2), "a look": Count(12, 1)}
    failures = [row.failure for row in compared("messages", 1, before, 1000, now)]
    assert failures == ["statements 1 → 40, at most 3", "reads 7 → 70,000, at most 158", ""]


def test_what_looks_at_each_partition_may_read_a_few_rows_for_each() -> None:
    before = {"an idle pass": Count(7, 2)}
    for reads, fails in ((4_000, False), (6_000, True)):
        (row,) = compared("partitions", 1, before, 1000, {"an idle pass": Count(reads, 2)})
        assert bool(row.failure) is fails


def test_every_line_of_consuming_has_its_bounds() -> None:
    assert BOUNDS.keys() == LINES.keys()


def test_a_flush_is_a_commit_of_what_has_written() -> None:
    look = "SELECT 1 FROM ems_retry_msg"
    assert commits_that_write([COMMIT]) == 1, "the first statement is inside of a transaction"
    quiet = [COMMIT, "SET autocommit=1"]
    assert commits_that_write([*quiet, look]) == 1
    assert commits_that_write([*quiet, SETTLE]) == 2, "a write without a transaction"
    assert commits_that_write([*quiet, BEGIN, look, COMMIT]) == 1
    assert commits_that_write([*quiet, BEGIN, SETTLE, SETTLE, COMMIT, look]) == 2
    assert commits_that_write([*quiet, "START TRANSACTION", SETTLE, "ROLLBACK"]) == 1


def test_statements_are_counted_in_whole_cycles_of_the_far_half() -> None:
    def cycle(first: int) -> list[str]:
        claim = (
            f"INSERT INTO `ems_topic_group_log` (…) VALUES (1, 2, {first}, {first + 9}, {first})"
        )
        return [
            BEGIN,
            f"UPDATE `ems_cursor` SET `next_offset` = {first + 10}",
            claim,
            COMMIT,
            SETTLE,
        ]

    statements = [text for start in range(FIRST, FIRST + 100, 10) for text in cycle(start)]
    heartbeats = ["UPDATE `ems_client` SET `lease_until` = 1"] * 50
    found = far_behind({1: ["SELECT 1", *statements], 2: heartbeats}, FIRST + 100, behind=100)
    # Claims at 0, 10, 20, 30 and 40 are in the far half: four whole cycles of five statements.
    assert (found.messages, found.statements, found.flushes) == (40, 20, 8)
    assert found.per_100(found.statements) == 50


# -- the rate that holds --


@pytest.mark.parametrize(
    ("lag", "holds"),
    [
        ([100.0] * 30, True),
        ([2000.0] + [100.0] * 29, True),  # the start
        ([100.0 + 5 * second for second in range(30)], True),  # half a percent: chance
        ([100.0 + 50 * second for second in range(30)], False),
        ([100.0] * 20 + [3500.0] + [100.0] * 9, False),
        ([3500.0] * 30, False),
        ([], True),
    ],
)
def test_a_rate_holds_while_the_lag_is_small_and_does_not_grow(
    lag: list[float], holds: bool
) -> None:
    assert bounded(lag, 1000.0) is holds


@pytest.mark.parametrize("highest", [100, 400, 900, 3_000])
def test_the_highest_rate_is_searched_from_both_sides(
    monkeypatch: pytest.MonkeyPatch, highest: int
) -> None:
    def run(at: float, seconds: float) -> rate.Run:
        return rate.Run(at, {}, holds=at <= highest, failure="")

    monkeypatch.setattr(rate, "run", run)
    tried = list(rate.search(quick=False))
    found = max(one.rate for one in tried if one.holds)
    assert highest * 0.9 <= found <= highest
    assert len(tried) <= 10


def test_a_rate_at_which_nothing_holds_is_not_searched_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate, "run", lambda at, seconds: rate.Run(at, {}, holds=False, failure=""))
    assert min(one.rate for one in rate.search(quick=False)) >= rate.LOWEST


# -- the planner --


def test_the_costs_of_the_package_are_of_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"processor": "p", "cores": 2, "server": "MySQL", "date": "2026-11-24"}
    monkeypatch.setattr(plan, "kept", lambda section: {"measured": about, "rows": []})
    with pytest.raises(plan.NotMeasured, match="make bench ARGS="):
        plan.collected()
    monkeypatch.setattr(plan, "kept", lambda section: {"measured": {**about, "server": section}})
    with pytest.raises(plan.NotMeasured, match="in one run, on one machine"):
        plan.collected()


def test_a_section_that_fails_is_named_and_the_others_are_measured_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(options: Options) -> Iterator[Row]:
        yield Row("one", {"ours": 1.0})
        raise LookupError("gone")

    def whole(options: Options) -> Iterator[Row]:
        yield Row("two", {"ours": 2.0})

    modules = {"tests.lab.benchmarks.a": broken, "tests.lab.benchmarks.b": whole}
    monkeypatch.setattr(benchmarks, "SECTIONS", {"a": ("a", "figures"), "b": ("b", "figures")})
    found = {name: SimpleNamespace(figures=one) for name, one in modules.items()}
    monkeypatch.setattr(benchmarks, "import_module", found.__getitem__)
    monkeypatch.setattr(benchmarks, "_about", lambda kind: {"server": "none"})
    monkeypatch.setattr(server, "database", lambda kind: nullcontext())
    monkeypatch.setattr(kept, "DATA", tmp_path / "data")
    monkeypatch.setattr(kept, "LAST", tmp_path / "cache" / "last.json")
    monkeypatch.setattr("sys.argv", ["benchmarks", "a", "b", "--keep"])
    (tmp_path / "cache").mkdir()
    assert benchmarks.main() == 1
    assert [path.name for path in kept.DATA.iterdir()] == ["b.json"]


def test_the_estimate_says_whose_run_it_speaks_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept, "LAST", tmp_path / "cache" / "benchmarks.json")
    assert "the run that the pages show" in benchmarks.estimate(["send", "growth"], quick=False)
    assert benchmarks.estimate(["send"], quick=True) == "send (nobody has timed send)"
    kept.note_seconds("send", 90)
    assert benchmarks.estimate(["send"], quick=False) == (
        "send: about 1.5 minutes, as the last run here"
    )
    assert "the pages show" in benchmarks.estimate(["send", "growth"], quick=False)
