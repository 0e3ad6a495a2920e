"""docs/contributing/map.md says of each module what its first line says."""

from __future__ import annotations

import re

from tests import map as code_map
from tests.docs.documents import table
from tests.test_layout import FLOORS


def test_it_says_of_each_module_what_its_first_line_says() -> None:
    assert code_map.PAGE.read_text() == code_map.written(), "write it anew: python -m tests.map"


def test_its_floors_are_those_that_are_tested() -> None:
    # Migrations and the package itself are not rooms that anybody looks for.
    expected = [floor - {"migrations", "__init__"} for floor in FLOORS["streams"]]
    documented = table(code_map.PAGE, "The direction of imports").values()
    assert [set(re.findall(r"\w+", rooms)) for rooms in documented] == expected
