"""Does what docs/tutorial.md says, from its first block to its last, in a project of its own.

Files are written and commands are run as the page has them, by real processes. Where a ``text``
block follows, the last command prints what it shows: numbers, ids and times aside.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.parse import urlencode

from tests.docs.documents import DOCS, FENCE, ROOT
from tests.processes import PATIENCE_SECONDS, wait_for

TUTORIAL = DOCS / "tutorial.md"
NAMED = re.compile(r"# (\S+\.py)(, at the end)?\n")
OF_THE_CHECKOUT = {"PYTHONPATH": str(ROOT)}


class Reader:
    """Someone who does what the page says, in one folder."""

    def __init__(
        self,
        folder: Path,
        python: Path = Path(sys.executable),
        env: Mapping[str, str] = OF_THE_CHECKOUT,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.folder = folder
        self._python = python
        self._env = env
        self._patience = patience
        self.printed = ""
        self._running: list[subprocess.Popen[str]] = []

    def read(self, kind: str, text: str) -> None:
        if kind == "python":
            self._write(text)
        elif kind == "console":
            for line in text.splitlines():
                self._do(line)
        elif kind == "text":
            assert re.search(pattern(text), simplified(self.printed)), self.printed

    def mails(self) -> list[str]:
        """To whom there is a mail."""
        found = [path.read_text() for path in (self.folder / "mail").glob("*")]
        return sorted(name for text in found for name in re.findall(r"^To: (.*)$", text, re.M))

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()

    def stop(self) -> int:
        """Press Ctrl-C in the other terminal."""
        process = self._running.pop()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_SECONDS)
        return process.returncode

    def _write(self, text: str) -> None:
        named = NAMED.match(text)
        assert named, text
        path = self.folder / named[1]
        before = path.read_text() if named[2] else ""
        path.write_text(before + text)
        # What Python has compiled is found out of date by whole seconds and the size only.
        for compiled in path.parent.glob("__pycache__/*"):
            compiled.unlink()

    def _do(self, line: str) -> None:
        words = shlex.split(line)
        env = {name: value for name, value in os.environ.items() if is_foreign(name)}
        env |= self._env
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            env[name] = value
        if words[0] == "python":
            words[0] = str(self._python)
        if words[-1] == "runserver":
            words += ["--noreload", str(self.port)]
        stays = words[-1] == "ems_consume" or "runserver" in words
        process = subprocess.Popen(
            words,
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if stays else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._running.append(process)
        if not stays:
            self.printed = self._running.pop().communicate(timeout=self._patience)[0]
            refused = "paid=False" in line
            assert bool(process.returncode) == refused, f"{line}\n{self.printed}"

    @property
    def port(self) -> int:
        if not hasattr(self, "_port"):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._port: int = free.getsockname()[1]
        return self._port


def is_foreign(name: str) -> bool:
    return not name.startswith(("EMS_", "DJANGO_", "PYTHON", "PYTEST_"))


def simplified(text: str) -> str:
    """Without what differs from run to run: numbers, ids, the width of columns."""
    # Alarms are evaluated every 15 s, whichever command runs then.
    text = re.sub(r"^.* Alarm (fires|is resolved): .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"[\w.:]+@\d+@\w+", "CLIENT", text)
    text = re.sub(r"\bworker-\d\b", "worker-N", text)
    text = re.sub(r"\d+:\d\d:\d\d", "TIME", text)
    text = re.sub(r"\d{4}-\d\d-\d\d", "DAY", text)
    text = re.sub(r"\b(\d+ min )?[\d.]+ s\b", "SECONDS", text)
    return re.sub(r"[ \t]+", " ", re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)).strip()


def pattern(text: str) -> str:
    return ".*".join(re.escape(part.strip()) for part in simplified(text).split("…")).replace(
        ".*", r"[\s\S]*"
    )


def do_all(reader: Reader) -> int:
    """Do all steps of the page; return the number of blocks."""
    steps = re.split(r"^## ", TUTORIAL.read_text(), flags=re.MULTILINE)[1:]
    assert len(steps) > 9
    blocks = 0
    for step in steps:
        for kind, text in FENCE.findall(step):
            reader.read(kind, text)
            blocks += 1
        heading = step.partition("\n")[0]
        if heading.startswith("3."):
            assert not (reader.folder / "mail").exists()
        if heading.startswith("4."):
            assert reader.mails() == ["ann@example.com"]
        if heading.startswith("8."):
            wait_for(lambda: len(reader.mails()) == 2)
            assert reader.mails() == ["ann@example.com", "cleo@example.com"]
            assert reader.stop() == 0
        if heading.startswith("9."):
            assert "warehouse" in admin_page(reader.port, "ems/consumergroup/")
    return blocks


def admin_page(port: int, path: str) -> str:
    """A page of the admin, as the user of the tutorial sees it."""
    site = f"http://127.0.0.1:{port}/admin/"
    jar = CookieJar()
    browser = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar)
    )
    form = opened(browser, f"{site}login/?next=/admin/{path}")
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', form)
    assert token
    user, password = re.search(
        r"as `(\w+)` with the password `(\w+)`", TUTORIAL.read_text()
    ).groups()  # type: ignore[union-attr]
    given = {"csrfmiddlewaretoken": token[1], "username": user, "password": password}
    data = urlencode({**given, "next": f"/admin/{path}"}).encode()
    with browser.open(f"{site}login/", data=data, timeout=PATIENCE_SECONDS) as page:
        return str(page.read().decode())


def opened(browser: urllib.request.OpenerDirector, url: str) -> str:
    """The page, once the server that was just started answers."""
    limit = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with browser.open(url, timeout=PATIENCE_SECONDS) as page:
                return str(page.read().decode())
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.05)
