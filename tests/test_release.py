"""What is published leads to pages that are there, and says what it is made of."""

from __future__ import annotations

import importlib.util
import re
import sys
import tarfile
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import pytest

from streams import release
from tests import release as publishing
from tests.docs.documents import README, ROOT

SITE = "https://docs.example/ems"


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return hatch_build.py, whose base class only the build has."""
    interface = ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_of_the_readme_lead_to_the_site_where_there_is_one(hook: Any) -> None:
    text = hook.readme(README.read_text(), f"{SITE}/1.0")
    assert f"[tutorial]({SITE}/1.0/tutorial.html)" in text
    assert f"({SITE}/1.0/reference/settings.html#where-a-new-group-starts)" in text
    assert f"({SITE}/1.0/images/flow.svg)" in text
    assert "](docs/" not in text
    assert "](CHANGELOG.md)" not in text


def test_links_of_the_readme_are_text_where_there_is_no_site(hook: Any) -> None:
    text = hook.readme(README.read_text(), None)
    assert "The tutorial builds this shop" in text
    assert "![" not in text
    assert re.findall(r"\]\((?!https://)", text) == []
    assert "(https://github.com/ThreeDotsLabs/watermill/issues/311)" in text


def test_a_hint_leads_to_the_page_of_this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    page = "guides/failover.md#restore-a-backup"
    monkeypatch.setattr(release, "_site", lambda: None)
    assert release.documentation(page) == f"docs/{page} of EMS {release.version()}"
    monkeypatch.setattr(release, "_site", lambda: SITE)
    expected = f"{SITE}/{release.version()}/guides/failover.html#restore-a-backup"
    assert release.documentation(page) == expected


def test_the_address_of_the_site_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Message()
    metadata["Version"] = "1.0"
    metadata["Project-URL"] = "Source, https://source.example"
    metadata["Project-URL"] = f"Documentation, {SITE}/"
    monkeypatch.setattr(release, "metadata", lambda name: metadata)
    release._site.cache_clear()
    try:
        assert release._site() == SITE
    finally:
        release._site.cache_clear()


@pytest.mark.parametrize(
    ("requirement", "name", "scope"),
    [
        ("django>=5.2", "django", "required"),
        ("pyspark[sql]<5,>=4.1; extra == 'spark'", "pyspark", "optional"),
        ("Django_Redis>=6.0; extra == 'redis'", "django-redis", "optional"),
    ],
)
def test_the_bill_names_what_is_needed(requirement: str, name: str, scope: str) -> None:
    found = publishing.component(requirement)
    assert (found["name"], found["scope"]) == (name, scope)


def test_a_file_that_is_missing_in_the_wheel_is_found(tmp_path: Path) -> None:
    wheel, sdist = tmp_path / "a.whl", tmp_path / "a.tar.gz"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("streams/secret.txt", "")
    tarfile.open(sdist, "w:gz").close()
    wrong = list(publishing.wrong_files(sdist, wheel, "1.0"))
    assert "streams/__init__.py is not in the wheel" in wrong
    assert "streams/secret.txt is in the wheel and was not committed" in wrong
    assert "README.md is not in the sdist" in wrong


def test_an_extra_for_work_on_ems_is_found() -> None:
    metadata = Message()
    metadata["Provides-Extra"] = "dev"
    metadata.set_payload("[a](docs/a.md)")
    wrong = list(
        publishing.wrong_metadata(metadata, {"version": "1", "license": "MIT", "license-files": []})
    )
    assert "the extra dev is published" in wrong
    assert any("docs/a.md" in one for one in wrong)


def test_a_version_without_its_section_is_not_ready() -> None:
    found = list(publishing.not_ready("9.9.9"))
    assert any("CHANGELOG.md" in one for one in found)
    assert any("UPGRADING.md" in one for one in found)
    assert any("tag v9.9.9" in one for one in found)
