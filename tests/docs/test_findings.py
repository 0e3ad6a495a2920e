"""docs/operations.md knows every diagnosis of the doctor and every finding of the audit."""

from __future__ import annotations

import re
from typing import get_args

from streams.models import step
from streams.observe.audit import finding
from tests.docs.documents import DOCS, ROOT, table

OPERATIONS = DOCS / "operations.md"


def test_every_finding_of_the_audit_is_documented() -> None:
    assert set(table(OPERATIONS, "The audit")) == set(get_args(finding.FindingKind))


def test_every_diagnosis_of_the_doctor_is_documented() -> None:
    files = ("streams/observe/doctor.py", "streams/observe/diagnoses.py", "monitoring/doctor.py")
    source = "".join((ROOT / file).read_text() for file in files)
    named = set(re.findall(r'Diagnosis\((?:OK|WARNING|ERROR), "([\w ]+)"', source))
    named |= {step.SEQUENCE, step.SWEEP}
    documented = {
        name.strip(" `") for cell in table(OPERATIONS, "The doctor") for name in cell.split(",")
    }
    assert documented - {""} == named
