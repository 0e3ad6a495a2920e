"""On top of what ``startproject`` wrote: what a project adds to use EMS, and its two variants.

HOST_VARIANT=atomic: requests are transactions, time zones as startproject sets them.
HOST_VARIANT=local: naive local time, 32-bit keys, another language.
"""

import os

from host.settings import *  # noqa: F403 - the file that startproject wrote
from host.settings import DATABASES, INSTALLED_APPS

INSTALLED_APPS += ["shop.streams", "shop.monitoring", "streams", "monitoring"]
ROOT_URLCONF = "shop.urls"
# What the check ems.W008 asks for.
DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}

if os.environ["HOST_VARIANT"] == "atomic":
    DATABASES["default"]["ATOMIC_REQUESTS"] = True
else:
    USE_TZ = False
    TIME_ZONE = "Asia/Shanghai"
    LANGUAGE_CODE = "de"
    DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
