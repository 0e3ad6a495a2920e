"""``make demo`` keeps what it promises: it ends by itself, cleanly, and touches nobody's data."""

from __future__ import annotations

import csv
import gzip
import http.cookiejar
import os
import re
import signal
import sqlite3
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.demo.terminal import Terminal
from tests.processes import ROOT, Child, started, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.any_database]

# Spark, where it is there, takes most of it.
DEMO_SECONDS = 240
DEMO = [sys.executable, "-u", "manage.py", "ems_demo"]
# The whole way of `make demo`, but in the environment that the tests run in.
MAKE_DEMO = """\
import sys
from pathlib import Path
from tests import dev, environments
environments.demo = lambda **named: Path(sys.executable)
sys.argv = ["dev.py", "demo"]
sys.exit(dev.main())
"""


@pytest.fixture
def run(demo_env: dict[str, str]) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start(*words: str) -> Child:
        children.append(Child(started(list(words), demo_env)))
        return children[-1]

    yield start
    for child in children:
        child.close()


@pytest.fixture
def terminal(demo_env: dict[str, str]) -> Iterator[Terminal]:
    terminal = Terminal([*DEMO, "--flights", "300"], demo_env)
    yield terminal
    terminal.close()


def row(output: str, name: str) -> list[int]:
    """The numbers of one line of the final table, without the rate at its end."""
    table = output.partition("messages/s")[2]
    (line,) = re.findall(rf"^  {name}  (.*)$", table, re.MULTILINE)
    return [int(number.replace(",", "")) for number in line.split()][:3]


def processes_of(folder: Path) -> list[str]:
    """The command lines of the living processes that were started with this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:  # ended meanwhile, or somebody else's
            continue
    return found


def test_the_fixture_holds_ten_thousand_real_departures() -> None:
    with gzip.open(ROOT / "fixtures" / "flights.csv.gz", "rt", encoding="utf-8") as file:
        flights = list(csv.DictReader(file))
    departed = [flight for flight in flights if flight["departed"]]
    assert len(departed) >= 10_000
    assert {flight["date"][:7] for flight in flights} == {"2013-01"}
    assert {flight["origin"] for flight in flights} == {"EWR", "JFK", "LGA"}


@pytest.mark.exhaustive
def test_without_a_terminal_the_demo_exits_with_a_clean_audit(
    run: Callable[..., Child], tmp_path: Path
) -> None:
    output = run(*DEMO, "--flights", "300").succeed(DEMO_SECONDS)
    # Of the first 300 flights one was cancelled, two were very late, two went to St. Thomas.
    assert row(output, "sent")[0] == 299
    assert row(output, "rolled back") == [1]
    assert row(output, "board") == [299, 0, 0]
    assert row(output, "billing") == [299, 4, 0]
    assert row(output, "customs") == [297, 4, 2]
    assert "299 messages x 3 groups, and 1 rolled back: 0 lost, 0 duplicated" in output
    assert re.search("in order  12 steps of 4 planes.* [12] came at the second attempt", output)
    assert re.search(r"replayed  \d+ messages of gates/\d to the group tower", output)
    assert re.search(r"delayed   sent for 2 s later, came after \d+\.\d\d s", output)
    assert re.search("celery    a ticket and its task, committed: .* its task ran once\n", output)
    assert re.search("          a ticket and its task, rolled back: no ticket, .* task\n", output)
    assert not list((tmp_path / "stage").iterdir()), "the demo has left its folder behind"


@pytest.mark.exhaustive
def test_the_demo_leaves_the_database_of_the_project_alone(
    run: Callable[..., Child], demo_env: dict[str, str], tmp_path: Path
) -> None:
    demo_env["DATABASE_URL"] = f"sqlite:///{tmp_path}/project.sqlite3"
    demo_env["REDIS_URL"] = "redis://127.0.0.1:1/0"
    run(*DEMO, "--flights", "1").succeed(DEMO_SECONDS)
    assert not (tmp_path / "project.sqlite3").exists()
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["secret-key"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_half_way_no_process_is_left_behind(
    number: signal.Signals, run: Callable[..., Child], tmp_path: Path
) -> None:
    demo = run(sys.executable, "-u", "-c", MAKE_DEMO)
    demo.expect(" s   sent")
    demo.expect(" s   sent")
    assert sum("ems_consume" in line for line in processes_of(tmp_path)) == 3
    if number == signal.SIGINT:
        os.killpg(demo.pid, number)  # as a terminal does
    else:
        demo.send_signal(number)
    assert demo.wait() == 128 + number
    assert processes_of(tmp_path) == []
    assert not list((tmp_path / "stage").iterdir())
    assert "Traceback" not in demo.text()


@pytest.mark.exhaustive
def test_interrupted_in_the_encore_no_worker_of_celery_is_left_behind(
    run: Callable[..., Child], tmp_path: Path
) -> None:
    demo = run(*DEMO, "--flights", "3")
    demo.expect("An encore")
    wait_for(lambda: any("celery" in line for line in processes_of(tmp_path)), demo.text)
    demo.send_signal(signal.SIGTERM)
    assert demo.wait() == 128 + signal.SIGINT
    assert processes_of(tmp_path) == []
    assert not list((tmp_path / "stage").iterdir())
    assert "Traceback" not in demo.text()


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's help")
def test_a_demo_that_is_killed_outright_takes_its_processes_along(
    run: Callable[..., Child], tmp_path: Path
) -> None:
    demo = run(*DEMO)
    demo.expect(" s   sent")
    assert processes_of(tmp_path)
    demo.kill()
    wait_for(lambda: not processes_of(tmp_path), lambda: processes_of(tmp_path))


@pytest.mark.exhaustive
def test_on_a_terminal_the_overview_is_served_until_ctrl_c(
    terminal: Terminal, tmp_path: Path
) -> None:
    address, overview = terminal.expect(
        r"The Overview is at (http://127\.0\.0\.1:\d+/admin/)(\S+)\s"
    ).groups()
    password = terminal.expect(r"as admin with the password (\S+)\s")[1]
    terminal.expect("Ctrl-C")
    assert "0 lost, 0 duplicated" in terminal.text
    index, page = log_in(address, password, overview)
    assert "Log out" in index
    assert "Flights" in index
    assert "Overview" in page
    for name in ("board", "billing", "customs", "flights"):
        assert f">{name}</a>" in page
    assert "Nobody runs these steps" not in page
    (database,) = (tmp_path / "stage").glob("*/ems.sqlite3")
    assert count(database, "ems_monitoring_sample")
    seen = count(database, "ems_demo_handled")
    # The encore has two groups; the flight that departs now is for three.
    wait_for(lambda: count(database, "ems_demo_handled") >= seen + 3)
    terminal.press_ctrl_c()
    assert terminal.wait() == 0
    assert processes_of(tmp_path) == []
    assert not list((tmp_path / "stage").iterdir())
    assert terminal.text.count(password) == 1


@pytest.mark.exhaustive
def test_without_a_terminal_serve_keeps_it_up_and_otherwise_it_says_how(
    run: Callable[..., Child], tmp_path: Path
) -> None:
    demo = run(*DEMO, "--flights", "3", "--serve")
    assert "/admin/ems_monitoring/overview/" in demo.expect("The Overview is at", DEMO_SECONDS)
    demo.expect("Ctrl-C")
    demo.send_signal(signal.SIGTERM)
    assert demo.wait() == 0
    assert processes_of(tmp_path) == []
    assert run(*DEMO, "--flights", "3").succeed(DEMO_SECONDS).endswith("make demo ARGS=--serve\n")


def count(database: Path, table: str) -> int:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


def log_in(address: str, password: str, more: str) -> tuple[str, str]:
    """Log in, and return the index of the admin and one more page."""
    cookies = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    with browser.open(address, timeout=20):
        pass
    token = next(cookie.value for cookie in cookies if cookie.name == "csrftoken")
    form = {"username": "admin", "password": password, "csrfmiddlewaretoken": token}
    data = urllib.parse.urlencode(form).encode()
    with browser.open(f"{address}login/?next=/admin/", data, timeout=20) as response:
        index = str(response.read().decode())
    with browser.open(address + more, timeout=20) as response:
        return index, str(response.read().decode())
