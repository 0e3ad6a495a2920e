"""The German and the Chinese catalogue have every text, and are compiled."""

from __future__ import annotations

import gettext
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from django.utils import translation

from tests import catalogues
from tests.packages import Programs

EVERY = [(name, language) for name in catalogues.PACKAGES for language in catalogues.LANGUAGES]
PLACEHOLDER = re.compile(r"%(?:\(\w+\))?[-+#0-9.]*[a-zA-Z%]|\{\w*\}")


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages, with catalogues made from what the code says now."""
    folder = tmp_path_factory.mktemp("catalogues")
    for name in catalogues.PACKAGES:
        shutil.copytree(catalogues.ROOT / name, folder / name)
        catalogues.extract(folder / name)
    return folder


def entries(po: Path) -> str:
    """A catalogue without its header, which has the time when it was made."""
    return po.read_text().partition("\n\n")[2]


def test_texts_are_marked_by_names_that_makemessages_knows() -> None:
    alias = re.compile(r"\bn?p?gettext(?:_lazy)? as (?!_$)\w+", re.MULTILINE)
    for name in catalogues.PACKAGES:
        for path in (catalogues.ROOT / name).rglob("*.py"):
            assert not alias.search(path.read_text()), path


@pytest.mark.parametrize(("package", "language"), EVERY)
def test_make_messages_would_change_nothing(extracted: Path, package: str, language: str) -> None:
    expected = entries(catalogues.catalogue(extracted / package, language))
    assert entries(catalogues.catalogue(catalogues.ROOT / package, language)) == expected


@pytest.mark.parametrize(("package", "language"), EVERY)
def test_every_text_is_translated(package: str, language: str) -> None:
    po = catalogues.catalogue(catalogues.ROOT / package, language)
    words = [Programs.find("gettext").program("msgfmt"), "--check-format", "--statistics"]
    done = subprocess.run(
        [*words, "--output-file=/dev/null", str(po)], capture_output=True, text=True, check=True
    )
    # "… 3 fuzzy translations, 2 untranslated messages." where something is left to do.
    assert re.fullmatch(r"\d{2,} translated messages?\.\n", done.stderr)


@pytest.mark.parametrize(("package", "language"), EVERY)
def test_the_compiled_catalogue_is_that_of_the_text(
    package: str, language: str, tmp_path: Path
) -> None:
    po = catalogues.catalogue(catalogues.ROOT / package, language)
    msgfmt = Programs.find("gettext").program("msgfmt")
    subprocess.run([msgfmt, f"--output-file={tmp_path / 'new.mo'}", str(po)], check=True)
    assert texts(po.with_suffix(".mo")) == texts(tmp_path / "new.mo")


@pytest.mark.parametrize(("package", "language"), EVERY)
def test_a_translation_has_the_placeholders_of_its_text(package: str, language: str) -> None:
    # msgfmt looks only at the texts that xgettext takes for formats.
    for key, translated in texts(
        catalogues.catalogue(catalogues.ROOT / package, language).with_suffix(".mo")
    ).items():
        original = key if isinstance(key, str) else key[0]
        if original:
            assert names(translated) == names(original), (original, translated)


def texts(mo: Path) -> dict[str | tuple[str, int], str]:
    with mo.open("rb") as file:
        return dict(vars(gettext.GNUTranslations(file))["_catalog"])


def names(text: str) -> list[str]:
    """The placeholders of a text: named ones in any order, the others in theirs."""
    found = PLACEHOLDER.findall(text)
    return sorted(found) if any("(" in name or "{" in name for name in found) else found


@pytest.mark.parametrize(
    ("code", "client", "source"), [("de", "aktiv", "live"), ("zh-hans", "存活", "实时")]
)
def test_a_client_that_runs_and_figures_of_now_are_not_the_same_word(
    code: str, client: str, source: str
) -> None:
    with translation.override(code):
        assert translation.gettext("live") == client
        assert translation.pgettext("source of figures", "live") == source


@pytest.mark.parametrize(("code", "expected"), [("de", "Partition"), ("zh-hans", "分区")])
def test_django_finds_them(code: str, expected: str) -> None:
    from streams.models import Partition

    with translation.override(code):
        assert str(Partition._meta.verbose_name) == expected
