"""Writes the catalogues of translations anew: ``make messages``.

Django's makemessages reads the code and the templates of each package, and merges what it finds
into ``PACKAGE/locale/LANGUAGE/LC_MESSAGES/django.po``. A new text has no translation there yet, and
one that resembles an older text has a guess marked ``fuzzy``: tests/docs/test_catalogues.py fails
until somebody has translated both. The compiled files (.mo) are committed, because an installation
has nothing to compile them with.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.packages import Programs

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("streams", "monitoring")
LANGUAGES = ("de", "zh_Hans")

# Neither line numbers nor wrapped lines: a change of the code changes only the texts it changes.
MAKE = ["makemessages", "--no-location", "--no-wrap", "--no-obsolete"]


def catalogue(package: Path, language: str) -> Path:
    """Return the path of a catalogue, whether or not it exists."""
    return package / "locale" / language / "LC_MESSAGES" / "django.po"


def extract(package: Path) -> None:
    """Merge the texts of a package into its catalogues; raises CalledProcessError, Unavailable."""
    (package / "locale").mkdir(exist_ok=True)
    _django(package, *MAKE, *(word for name in LANGUAGES for word in ("--locale", name)))


def compile_all(package: Path) -> None:
    """Compile the catalogues of a package; raises CalledProcessError where one is malformed."""
    _django(package, "compilemessages")


def _django(folder: Path, *words: str) -> None:
    program = Path(Programs.find("gettext").program("xgettext"))
    path = f"{program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    subprocess.run(
        [sys.executable, "-m", "django", *words],
        cwd=folder,
        env={**os.environ, "PATH": path, "DJANGO_SETTINGS_MODULE": "", "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )


if __name__ == "__main__":
    for name in PACKAGES:
        extract(ROOT / name)
        compile_all(ROOT / name)
