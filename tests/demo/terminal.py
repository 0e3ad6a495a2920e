"""Runs a program on its own terminal, as a person runs it."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time

from tests.processes import PATIENCE_SECONDS, ROOT

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.text = ""
        self._screen, inside = os.openpty()
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**env, "TERM": "xterm"},
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until what the program has written contains ``pattern``."""
        limit = time.monotonic() + PATIENCE_SECONDS
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < limit, f"never wrote {pattern!r}:\n{self.text}"
            assert self._read(), f"ended without {pattern!r}:\n{self.text}"
        return found

    def write(self, text: bytes) -> None:
        os.write(self._screen, text)

    def press_ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self) -> int:
        """Read to its end; returns its exit status."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._screen)

    def _read(self) -> bool:
        """Read more, for a second at most; False once the program has closed its terminal."""
        if not select.select([self._screen], [], [], 1)[0]:
            return True
        try:
            read = os.read(self._screen, 65536)
        except OSError:  # what Linux gives for the end
            return False
        self.text += CONTROL.sub("", read.decode(errors="replace"))
        return bool(read)
