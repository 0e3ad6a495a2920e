"""Gives the package the README as an index shows it, where the files beside it are not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

IMAGE = re.compile(r"^!\[([^]]*)\]\(docs/([^)\s]*)\)\n\n?", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^]]*)\]\((?!https://)([^)\s]*)\)")
PAGE = re.compile(r"docs/(?P<path>[\w/.-]+)\.md(?P<heading>#[\w-]+)?")


class ReadmeHook(MetadataHookInterface):
    """Makes links to files absolute, as streams/release.py does for hints."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text()
        site = metadata.get("urls", {}).get("Documentation")
        base = f"{site.rstrip('/')}/{metadata['version']}" if site else None
        text = readme(text, base)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def readme(text: str, base: str | None) -> str:
    """Return ``text`` with links to pages of the site at ``base``.

    What is not on the site, and everything without a site, is text without a link or a picture: a
    link that leads nowhere is worse.
    """

    def shown(image: re.Match[str]) -> str:
        return f"![{image[1]}]({base}/{image[2]})\n\n" if base else ""

    def linked(link: re.Match[str]) -> str:
        title, target = link.groups()
        page = PAGE.fullmatch(target)
        if base is None or page is None:
            return title
        return f"[{title}]({base}/{page['path']}.html{page['heading'] or ''})"

    return LINK.sub(linked, IMAGE.sub(shown, text))
