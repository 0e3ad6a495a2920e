"""The stylesheet: what has a colour can be read in light and dark mode."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.utils.html import strip_tags

from streams.admin.parts import figures
from streams.log.condition import Condition

AA = 4.5
LEVELS = (figures.BAD, figures.WARNING, figures.GOOD, figures.QUIET)
MODES = {
    "as the system prefers, light": r"^:root \{(.*?)\}",
    "as the system prefers, dark": r"prefers-color-scheme: dark\) \{\s*:root \{(.*?)\}",
    "light": r'^html\[data-theme="light"\] \{(.*?)\}',
    "dark": r'^html\[data-theme="dark"\] \{(.*?)\}',
}


def stylesheet(name="ems/admin.css"):
    path = finders.find(name)
    assert isinstance(path, str)
    return Path(path).read_text()


def colours(mode):
    found = re.search(MODES[mode], stylesheet(), re.S | re.M)
    assert found, mode
    return dict(re.findall(r"--ems-([a-z-]+): (#\w+);", found[1]))


def luminance(colour):
    digits = colour[1:]
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("level", LEVELS)
def test_the_word_of_a_state_can_be_read(mode, level):
    pair = [luminance(colours(mode)[f"{level}-{side}"]) for side in ("fg", "bg")]
    contrast = (max(pair) + 0.05) / (min(pair) + 0.05)
    assert contrast >= AA, f"{contrast:.2f}"


def test_a_choice_of_the_mode_has_the_same_colours_as_the_systems():
    assert colours("light") == colours("as the system prefers, light")
    assert colours("dark") == colours("as the system prefers, dark")


def test_a_state_is_a_word_and_not_only_a_colour():
    texts = [strip_tags(figures.group_words(one, "bad", ())) for one in Condition]
    assert all(texts)
    assert len(set(texts)) == len(texts)  # the words differ where the colours do


@pytest.mark.parametrize("name", ["ems/admin.css", "ems_monitoring/monitoring.css"])
def test_every_rule_is_closed_before_the_next_one_begins(name):
    open_rules = 0
    for line in stylesheet(name).splitlines():
        assert not open_rules or line[:1] in ("", " ", "}"), line
        open_rules += line.count("{") - line.count("}")
    assert open_rules == 0
