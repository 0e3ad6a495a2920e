"""Lists the pages, in the order of their tabs. A new page is one line here."""

from __future__ import annotations

from monitoring.pages.alarms import AlarmsPage
from monitoring.pages.archive import ArchivePage
from monitoring.pages.audit import AuditPage
from monitoring.pages.backlog import BacklogPage
from monitoring.pages.base import FiguresPage
from monitoring.pages.components import ComponentsPage
from monitoring.pages.consumption import ConsumptionPage
from monitoring.pages.group import GroupPage
from monitoring.pages.groups import GroupsPage
from monitoring.pages.overview import OverviewPage
from monitoring.pages.pipeline import PipelinePage
from monitoring.pages.search import SearchPage
from monitoring.pages.streams import StreamsPage
from monitoring.pages.topic import TopicPage
from monitoring.pages.topics import TopicsPage
from monitoring.pages.work import WorkPage

PAGES: tuple[type[FiguresPage], ...] = (
    OverviewPage,
    AlarmsPage,
    TopicsPage,
    TopicPage,
    GroupsPage,
    GroupPage,
    WorkPage,
    BacklogPage,
    ConsumptionPage,
    StreamsPage,
    SearchPage,
    PipelinePage,
    AuditPage,
    ArchivePage,
    ComponentsPage,
)
