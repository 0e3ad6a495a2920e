"""``python -m tests.llms`` writes docs/llms.txt, the list of pages that programs read first.

It has the pages of the navigation, each with its first sentence, as llmstxt.org asks for it, but
what is about work on EMS, and each single decision and benchmark.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "llms.txt"
LINE = re.compile(r"^( *)- ([^:\n]+):(?: (\S+\.md))?$", re.MULTILINE)
LEFT_OUT = (
    *("contributing/", "decisions/", "about/benchmarks/"),
    *("about/seeds.md", "about/decisions.md", "README.md"),
)
SENTENCE = re.compile(r"(.+?[.:])(?:\s|$)", re.DOTALL)
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
HEAD = """\
# EMS for Django

> {summary}

These are the pages of one version: `streams.__version__` says which one is installed.
"""


def written() -> str:
    """Return the list as it must be."""
    site = (ROOT / "mkdocs.yml").read_text()
    summary = re.findall(r"^site_description: (.*)$", site, re.MULTILINE)[0]
    text = HEAD.format(summary=summary)
    for indent, title, page in LINE.findall(site.partition("\nnav:\n")[2]):
        if not page:
            text += f"\n## {title}\n\n" if len(indent) == 2 else ""
        elif not page.startswith(LEFT_OUT):
            text += "\n" if len(indent) == 2 and not text.endswith("\n\n") else ""
            address = page.removesuffix(".md") + ".html"
            text += f"- [{title}]({address}): {first_sentence(ROOT / 'docs' / page)}\n"
    return text.replace("\n## Contributing\n\n", "")


def first_sentence(page: Path) -> str:
    """Return what the page says first: its first sentence that is neither code, list nor table."""
    without_code = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n", without_code):
        if block.strip() and not block.lstrip().startswith(("#", "-", "|", "!", "1.", "<!")):
            sentence = SENTENCE.match(block.strip())
            return LINK.sub(r"\1", " ".join((sentence[1] if sentence else block).split()))
    raise LookupError(f"{page} has no sentence")


if __name__ == "__main__":
    FILE.write_text(written())
