from __future__ import annotations

import os
from pathlib import Path

import pytest

from emsproject.demo.stage import IGNORED


@pytest.fixture
def demo_env(tmp_path: Path) -> dict[str, str]:
    """The environment of a demo that leaves whatever it leaves in ``tmp_path``."""
    stage = tmp_path / "stage"
    stage.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in IGNORED}
    return {
        **kept,
        "DJANGO_SETTINGS_MODULE": "emsproject.settings",
        "EMS_STATE_DIR": str(tmp_path / "state"),
        "TMPDIR": str(stage),
        # Spark takes longer than all the rest: test_rollup.py has it.
        "JAVA_HOME": "/nonexistent",
    }
