"""Reads the tests of others from their source distributions, and rewrites them."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.packages import cache_folder

Rules = Sequence[tuple[str, str]]  # what stands in a file, as a regular expression, and what for

# The backport has the same modules under another name.
BACKPORT = [
    (r"\bdjango\.tasks\b", "django_tasks"),
    (r"\bInvalidTask\b", "InvalidTaskError"),
    (r"\bInvalidTaskBackend\b", "InvalidTaskBackendError"),
    (r"does not support async Tasks", "does not support async tasks"),
]


@dataclass(frozen=True)
class Sdist:
    """A source distribution, of which the tests are read."""

    package: str
    version: str
    sha256: str

    def read(self, path: str) -> str:
        with tarfile.open(self._fetched()) as archive:
            member = archive.extractfile(f"{self.package}-{self.version}/{path}")
            assert member is not None
            return member.read().decode()

    def _fetched(self) -> Path:
        """Return the file; it is fetched once. Raises RuntimeError for another one."""
        folder = cache_folder() / "peers"
        file = folder / f"{self.package}-{self.version}.tar.gz"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            words = ["download", "-q", "-d", str(folder), "--no-deps", "--no-binary", ":all:"]
            # It is only read, on any Python.
            words += ["--python-version", "3.13", f"{self.package}=={self.version}"]
            subprocess.run([sys.executable, "-m", "pip", *words], check=True)
        if hashlib.sha256(file.read_bytes()).hexdigest() != self.sha256:
            raise RuntimeError(f"{file} is not what these tests were written for")
        return file


@dataclass(frozen=True)
class File:
    """A file of a source distribution, and the rules by which it is rewritten."""

    sdist: Sdist
    path: str
    rules: Rules = ()

    @property
    def text(self) -> str:
        text = self.sdist.read(self.path)
        for pattern, replacement in self.rules:
            text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
            # A rule that finds nothing would say of a test what is not so.
            assert count, f"{self.path} has no {pattern}"
        if not find_spec("django.tasks"):
            for pattern, replacement in BACKPORT:
                text = re.sub(pattern, replacement, text)
        return text
