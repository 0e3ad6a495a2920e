"""The mutants fit the code as it stands: said at once, not only when they are run."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.lab.mutants.mutant import Mutant
from tests.lab.mutants.patches import MUTANTS
from tests.lab.mutants.trial import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_to_the_code_and_names_a_test(mutant: Mutant) -> None:
    compile(mutant.mutated(ROOT), mutant.file, "exec")
    path, *_classes, name = mutant.test.partition("[")[0].split("::")
    assert re.search(rf"^ *def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_mutants_have_names_of_their_own() -> None:
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
