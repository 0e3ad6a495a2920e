"""Reads the tests of others from their source distributions, and rewrites them."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from tests.sdists import Sdist

Rules = Sequence[tuple[str, str]]  # what stands in a file, as a regular expression, and what for

# The backport has the same modules under another name.
BACKPORT = [
    (r"\bdjango\.tasks\b", "django_tasks"),
    (r"\bInvalidTask\b", "InvalidTaskError"),
    (r"\bInvalidTaskBackend\b", "InvalidTaskBackendError"),
    (r"does not support async Tasks", "does not support async tasks"),
]


@dataclass(frozen=True)
class File:
    """A file of a source distribution, and the rules by which it is rewritten."""

    sdist: Sdist
    path: str
    rules: Rules = ()

    @property
    def text(self) -> str:
        with tarfile.open(self.sdist.fetched()) as archive:
            member = archive.extractfile(f"{self.sdist.name}/{self.path}")
            assert member is not None
            text = member.read().decode()
        for pattern, replacement in self.rules:
            text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
            # A rule that finds nothing would say of a test what is not so.
            assert count, f"{self.path} has no {pattern}"
        if not find_spec("django.tasks"):
            for pattern, replacement in BACKPORT:
                text = re.sub(pattern, replacement, text)
        return text
