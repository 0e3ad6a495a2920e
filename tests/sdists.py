"""Fetches source distributions of others, whose tests run on EMS. Nothing of them is kept here."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.packages import cache_folder


@dataclass(frozen=True)
class Sdist:
    """A source distribution, of which the tests are read."""

    package: str
    version: str
    sha256: str

    @property
    def name(self) -> str:
        return f"{self.package}-{self.version}"

    def fetched(self) -> Path:
        """Return the file; pip fetches it once. Raises RuntimeError for another one."""
        folder = cache_folder() / "suites"
        file = folder / f"{self.name}.tar.gz"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            words = ["download", "-q", "-d", str(folder), "--no-deps", "--no-binary", ":all:"]
            # It is only read, on any Python.
            words += ["--python-version", "3.13", f"{self.package}=={self.version}"]
            subprocess.run([sys.executable, "-m", "pip", *words], check=True)
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if found != self.sha256:
            raise RuntimeError(f"{file} has the checksum {found}, not {self.sha256}")
        return file
