"""Defines the URLs of the project: the admin, and the HTTP API where its extra is installed."""

from importlib.util import find_spec

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("admin/", admin.site.urls),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
if find_spec("ninja"):
    urlpatterns.append(path("ems/", include("streams.http.urls")))
