"""docs/guides/operations.md knows every diagnosis of the doctor and every finding of the audit."""

from __future__ import annotations

import re
from typing import get_args

from streams import findings, maintenance
from tests.docs.documents import DOCS, ROOT, table

OPERATIONS = DOCS / "guides" / "operations.md"


def test_every_finding_of_the_audit_is_documented() -> None:
    assert set(table(OPERATIONS, "The audit")) == set(get_args(findings.Kind))


def test_every_diagnosis_of_the_doctor_is_documented() -> None:
    source = "".join((ROOT / app / "doctor.py").read_text() for app in ("streams", "monitoring"))
    named = set(re.findall(r'Diagnosis\((?:OK|WARNING|ERROR), "([\w ]+)"', source))
    named |= {maintenance.SEQUENCE, maintenance.SWEEP}
    documented = {
        name.strip(" `") for cell in table(OPERATIONS, "The doctor") for name in cell.split(",")
    }
    assert documented - {""} == named
