"""A host that checks its types gets ours: the packages in the wheel say that they are typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

# One host is enough: what mypy sees of EMS does not depend on the version of Django.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("host_python", ["5.2"], indirect=True),
]

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def mypy(host_python: Path, tmp_path_factory: pytest.TempPathFactory):
    """Check a file as the host's own mypy --strict does; returns the lines with an error."""
    folder = tmp_path_factory.mktemp("mypy")

    def check(path: Path) -> dict[int, str]:
        (folder / path.name).write_text(path.read_text())
        words = ["--strict", "--python-executable", str(host_python), "--config-file", "/dev/null"]
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *words, path.name],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        errors = re.findall(rf"^{path.name}:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
        assert bool(errors) == bool(done.returncode), done.stdout
        return {int(line): text for line, text in errors}

    return check


@pytest.mark.exhaustive
def test_right_use_passes_mypy_strict(mypy) -> None:
    assert mypy(HERE / "typed" / "right.py") == {}


def test_wrong_use_is_refused_by_mypy(mypy) -> None:
    path = HERE / "typed" / "wrong.py"
    lines = enumerate(path.read_text().splitlines(), start=1)
    refused = {number for number, line in lines if line.endswith("# refused")}
    assert mypy(path).keys() == refused
