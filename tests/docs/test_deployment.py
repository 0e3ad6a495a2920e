"""The files of docs/guides/deployment.md are what those programs read, and fit the code."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from streams.conf import settings
from streams.management.commands.ems_consume import Command
from streams.process.processes import KILL_GRACE_SECONDS
from streams.process.shared.life_signs import CONSUMING, HUNG_SECONDS
from tests.docs.documents import DOCS, blocks, section

PAGE = DOCS / "guides" / "deployment.md"


def unit() -> str:
    return next(text for text in blocks(PAGE, "ini") if "ems-consume.service" in text)


def of_supervisor() -> Any:
    (text,) = (text for text in blocks(PAGE, "ini") if "[program:ems-consume]" in text)
    parsed = configparser.RawConfigParser(inline_comment_prefixes=(" ;",))
    parsed.read_string(text)
    return parsed["program:ems-consume"]


def compose() -> Any:
    (text,) = (text for text in blocks(PAGE, "yaml") if "compose.yaml" in text)
    return yaml.safe_load(text)


def of_kubernetes() -> list[Any]:
    (text,) = (text for text in blocks(PAGE, "yaml") if "apiVersion" in text)
    return list(yaml.safe_load_all(text))


def command_lines() -> list[list[str]]:
    deployment, _scaler = of_kubernetes()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (docker,) = re.findall(r"^CMD (\[.*\])$", blocks(PAGE, "dockerfile")[0], re.MULTILINE)
    (started,) = re.findall(r"^ExecStart=(.*)$", unit(), re.MULTILINE)
    return [
        container["args"],
        yaml.safe_load(docker),
        shlex.split(started),
        shlex.split(of_supervisor()["command"]),
    ]


@pytest.mark.parametrize("words", command_lines(), ids=["kubernetes", "docker", "unit", "program"])
def test_each_file_starts_ems_consume_with_options_that_it_has(words: list[str]) -> None:
    program, _manage, *arguments = words
    assert Path(program).name == "python"
    assert arguments[0] == "ems_consume"
    parser = ArgumentParser(exit_on_error=False)
    Command().add_arguments(parser)
    parser.parse_args(arguments[1:])


def test_each_file_leaves_the_time_that_a_stop_may_take() -> None:
    longest = settings().DRAIN_SECONDS + KILL_GRACE_SECONDS
    deployment, _scaler = of_kubernetes()
    (of_unit,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit(), re.MULTILINE)
    given = [
        of_unit,
        of_supervisor()["stopwaitsecs"],
        compose()["services"]["consume"]["stop_grace_period"].removesuffix("s"),
        deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"],
    ]
    assert all(int(seconds) > longest for seconds in given)


def test_the_watchdog_waits_longer_than_a_hung_process_is_unnoticed() -> None:
    (seconds,) = re.findall(r"^WatchdogSec=(\d+)$", unit(), re.MULTILINE)
    assert int(seconds) > 2 * HUNG_SECONDS
    (limit,) = set(re.findall(r"heartbeat\) \)\) -lt (\d+)", PAGE.read_text()))
    assert int(limit) > 2 * HUNG_SECONDS


def probed(command: list[str], file: Path) -> int:
    words = [word.replace("/run/ems/heartbeat", str(file)) for word in command]
    return subprocess.run(words, check=False).returncode


def test_the_probes_of_kubernetes_tell_what_the_file_says(tmp_path: Path) -> None:
    deployment, _scaler = of_kubernetes()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ready, alive = (
        container[f"{one}Probe"]["exec"]["command"] for one in ("readiness", "liveness")
    )
    file = tmp_path / "beat"
    assert probed(ready, file) != 0
    assert probed(alive, file) != 0
    file.write_text("starting\n")
    assert (probed(ready, file) != 0, probed(alive, file)) == (True, 0)
    file.write_text(f"{CONSUMING}\n")
    assert probed(ready, file) == 0
    os.utime(file, (0, 0))
    assert probed(alive, file) != 0


def test_the_probe_of_compose_tells_an_old_file(tmp_path: Path) -> None:
    kind, command = compose()["services"]["consume"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    words = ["sh", "-c", command.replace("$$", "$")]
    file = tmp_path / "beat"
    file.touch()
    assert probed(words, file) == 0
    os.utime(file, (0, 0))
    assert probed(words, file) != 0


def test_what_scales_is_a_metric_with_these_labels() -> None:
    deployment, scaler = of_kubernetes()
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    (metric,) = scaler["spec"]["metrics"]
    asked = metric["external"]["metric"]
    telemetry = section(DOCS / "guides" / "telemetry.md", "What the tables say")
    labels = ", ".join(asked["selector"]["matchLabels"])
    assert f"| `{asked['name']}` | gauge | {labels} |" in telemetry


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_finds_nothing_wrong_in_the_unit(tmp_path: Path) -> None:
    file = tmp_path / "ems-consume.service"
    # The program and the account are those of the reader.
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit(), flags=re.MULTILINE)
    file.write_text(text.replace("User=shop", "User=root"))
    words = ["systemd-analyze", "verify", "--man=no", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    wrong = [line for line in (done.stdout + done.stderr).splitlines() if file.name in line]
    assert not wrong
