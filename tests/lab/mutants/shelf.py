"""Lists the mutants of hints that name pages, and of what is not found over HTTP."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

RELEASE = "streams/release.py"
PUBLISHED = "tests/test_release.py"

SHELF = [
    Mutant(
        "a-hint-without-its-heading",
        RELEASE,
        ".html{mark}{heading}",
        ".html",
        f"{PUBLISHED}::test_a_hint_leads_to_the_page_of_this_version",
    ),
    Mutant(
        "hints-lead-to-any-address-of-the-project",
        RELEASE,
        'if label.strip() == "Documentation":',
        "if address:",
        f"{PUBLISHED}::test_the_address_of_the_site_is_that_of_the_package",
    ),
    Mutant(
        "a-group-that-is-not-there-has-a-code-of-its-own-on-some-routes",
        "streams/http/found.py",
        'raise UnknownGroup(f"There is no group {name!r} on {topic!r}.")',
        'raise Problem(404, "unknown", "There is no such group.")',
        "tests/http/test_operate.py::test_a_group_is_deleted_unless_it_takes_too_long",
    ),
]
