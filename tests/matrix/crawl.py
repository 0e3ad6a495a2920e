"""Opens each page of the admin that links lead to: ``python crawl.py LANGUAGE``, in a project.

It is copied into the project of a cell, and knows nothing of the checkout. It prints the number of
pages. A page that fails, or is not in the language, ends it.
"""

from __future__ import annotations

import re
import sys
from html import unescape
from urllib.parse import urljoin, urlsplit

AT_MOST = 500  # pages
LEFT_OUT = ("/logout/", "/jsi18n/", "/autocomplete/", "/password_change/")


def main(language: str) -> int:
    import django

    django.setup()
    from django.conf import settings
    from django.contrib.auth import get_user_model
    from django.test import Client

    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client(headers={"accept-language": language})
    client.force_login(get_user_model().objects.filter(is_superuser=True)[0])
    waiting, seen, pages = ["/admin/"], {"/admin/"}, 0
    while waiting and pages < AT_MOST:
        url = waiting.pop(0)
        answer = client.get(url)
        assert answer.status_code < 400, f"{url}: {answer.status_code}"
        pages += 1
        if not answer.headers.get("Content-Type", "").startswith("text/html"):
            continue
        if answer.status_code >= 300:
            links = [answer.headers["Location"]]
        else:
            text = b"".join(answer).decode()
            assert f'lang="{language}"' in text, f"{url} is not in {language}"
            links = re.findall(r'href="([^"#]+)', text)
        for link in links:
            to = urljoin(url, unescape(link))
            # The filters of a list are opened one by one, and not all of them together.
            deep = "?" in to and "?" in url
            inside = to.startswith("/admin/") and not urlsplit(to).netloc
            if inside and not deep and to not in seen and not any(one in to for one in LEFT_OUT):
                seen.add(to)
                waiting.append(to)
    print(pages)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
