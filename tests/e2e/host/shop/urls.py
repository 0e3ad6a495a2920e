from django.contrib import admin
from django.urls import path

from shop.streams.views import start

urlpatterns = [path("admin/", admin.site.urls), path("start/", start)]
