"""Lists the redrives of dead letters at a rate, and finds one."""

from __future__ import annotations

from ninja import Router

from streams.http.access import ApiRequest, Caller, needs
from streams.http.databases import Database, alias_of_id, page_of_all
from streams.http.fields import MOST, Id, Limit, PageOfAll
from streams.http.letters import place
from streams.http.problems import Problem
from streams.http.threads import on_pool
from streams.models import ConsumerGroup, Redrive, Verb
from streams.models.token import ANY
from streams.nouns.redrive import RedriveShown

router = Router(tags=["Dead letters"])


@router.get("/dead/redrives", response=PageOfAll[RedriveShown])
@needs("dead")
@on_pool
def list_redrives(
    request: ApiRequest, after: str | None = None, limit: Limit = 100
) -> PageOfAll[RedriveShown]:
    """List the redrives at a rate: the newest first, those of one database after the other."""

    def read(using: str, behind: int | None, most: int) -> tuple[list[RedriveShown], int | None]:
        rows = Redrive.objects.using(using).defer("ids").filter(pk__lt=behind or MOST)
        found = list(rows.order_by("-pk")[:most])
        items = [RedriveShown.of(row) for row in found if _may(request.auth, row)]
        return items, found[-1].pk if len(found) == most else None

    return page_of_all(after, int, limit, read)


def redrive_numbered(caller: Caller, number: Id, on: Database = None) -> Redrive:
    """Return a redrive that the caller may stop; raises Problem (404)."""
    row = Redrive.objects.using(alias_of_id(on)).filter(pk=number).first()
    if row is None or not _may(caller, row):
        raise Problem(404, "unknown", f"There is no redrive {number}.")
    return row


def _may(caller: Caller, row: Redrive) -> bool:
    if caller.may(Verb.DEAD, ANY):
        return True
    groups = ConsumerGroup.objects.using(row._state.db).filter(pk__in=row.groups)
    found = [place(one) for one in groups.select_related("topic")]
    # Nobody can tell any more what a deleted group was.
    return 0 < len(found) == len(row.groups) and all(caller.may(Verb.DEAD, one) for one in found)
