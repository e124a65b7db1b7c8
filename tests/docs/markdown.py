"""Just enough Markdown to test our own pages: fenced blocks, inline code, headings and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<info>.*)$")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")
HEADING = re.compile(r"^#+ +(?P<text>.+?) *$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: the words after its opening fence, and the lines between the fences."""

    info: tuple[str, ...]
    text: str
    first_line: int
    last_line: int

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""


def pages() -> list[Path]:
    """Return every page that people read: those at the root and all below docs/."""
    return [*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").rglob("*.md"))]


def page_id(path: Path) -> str:
    return str(path.relative_to(PROJECT))


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks in order; line numbers count from 1 and leave the fences out."""
    found: list[Block] = []
    opened: tuple[int, tuple[str, ...]] | None = None
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        fence = FENCE.match(line)
        if fence is None:
            continue
        if opened is None:
            opened = number, tuple(fence["info"].split())
            continue
        first, info = opened[0] + 1, opened[1]
        body = "".join(f"{line}\n" for line in lines[first - 1 : number - 1])
        found.append(Block(info=info, text=body, first_line=first, last_line=number - 1))
        opened = None
    if opened is not None:
        raise ValueError(f"the block opened in line {opened[0]} is never closed")
    return found


def prose(text: str) -> str:
    """Return the text with fenced blocks blanked out, line for line."""
    lines = text.splitlines()
    for block in blocks(text):
        for number in range(block.first_line - 1, block.last_line + 2):
            lines[number - 1] = ""
    return "\n".join(lines)


def links(text: str) -> list[str]:
    """Return the targets of links and images outside code."""
    without_code = re.sub(r"`[^`\n]*`", "``", prose(text))
    return [match["target"] or match["image"] for match in LINK.finditer(without_code)]


def anchors(text: str) -> set[str]:
    """Return the names by which a page's headings can be linked to."""
    headings = (match["text"] for match in HEADING.finditer(prose(text)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(text: str) -> list[str]:
    """Return the targets of every `make ...` in inline code and in shell blocks."""
    shell = "\n".join(block.text for block in blocks(text) if block.language in {"sh", "bash", "console"})
    inline = "\n".join(re.findall(r"`([^`\n]+)`", prose(text)))
    return re.findall(r"^(?:\$ )?make ([a-z][a-z-]*)", f"{shell}\n{inline}", re.MULTILINE)
