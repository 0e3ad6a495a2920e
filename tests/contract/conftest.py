"""Takes the fixtures of the faces."""

from tests.admin.conftest import as_role
from tests.commands.conftest import run
from tests.http.conftest import _nothing_is_known, _where_it_runs, api, make_token

__all__ = ["_nothing_is_known", "_where_it_runs", "api", "as_role", "make_token", "run"]
