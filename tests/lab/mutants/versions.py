"""Lists the mutants of what is said of versions, and of a package that hides the one of EMS."""

from __future__ import annotations

from tests.lab.mutants.mutant import Mutant

SERVERS = (
    "tests/streams/test_checks.py::TestServer"
    "::test_a_server_without_skip_locked_is_an_error_and_one_that_is_not_tested_a_warning"
)
HIDDEN = "tests/monitoring/test_another_streams.py"

VERSIONS = [
    Mutant(
        "an-untested-server-not-told",
        "streams/checks.py",
        "    elif known.is_untested(server.version):\n",
        "    elif False:\n",
        SERVERS,
        "mysql",
    ),
    Mutant(
        "a-tested-server-called-untested",
        "streams/observe/tested_servers.py",
        "return version < self.series[0]",
        "return version < self.series[-1]",
        SERVERS,
        "mysql",
    ),
    Mutant(
        "another-streams-not-noticed",
        "monitoring/__init__.py",
        "\n\n_refuse_another_streams()\n",
        "\n",
        f"{HIDDEN}::test_the_error_names_both_packages_and_what_to_do",
    ),
]
