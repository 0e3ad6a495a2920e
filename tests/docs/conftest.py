"""Makes the project of the README from its code blocks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django import Settings

from tests.docs.documents import DOCS, README, files

# What the documents leave to the reader.
OURS = {
    "shop/__init__.py": "",
    "shop/models.py": "from tests.hostapp.models import Order\n",
    "shop_settings.py": """\
from pathlib import Path
import django
from tests.settings import *

INSTALLED_APPS = [*INSTALLED_APPS, "shop"]
BACKEND, MAIL = "django.core.mail.backends.filebased.EmailBackend", Path(__file__).parent / "mail"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": BACKEND, "OPTIONS": {"file_path": MAIL}}}
else:
    EMAIL_BACKEND, EMAIL_FILE_PATH = BACKEND, MAIL
""",
}


@pytest.fixture
def shop(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    clean_registry: None,
) -> Iterator[Path]:
    """Yield the folder of the project, whose app ``shop`` is installed in this process, too."""
    for name, text in {**OURS, **files(README), **files(DOCS / "guides" / "testing.md")}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "shop"]
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]
