"""The project's pages as data: fenced code blocks, inline code, links and headings of each markdown file.

An HTML comment right before a block says how a test takes it:

    <!-- not run: needs a Kubernetes cluster -->     an exception, with its reason
    <!-- exit 1 -->                                   the last command's expected exit code
    <!-- engine: duckdb -->                           who runs an `sql` block (default: Spark)
    <!-- output -->                                   what the block before printed; `…` stands for anything
    <!-- file: cdc.yaml -->                           the block is written to this file of the reader's folder
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
_MARK = re.compile(r"<!--\s*(not run|exit|engine|output|file)\b:?\s*(.*?)\s*-->", re.DOTALL)
_PARSER = MarkdownIt("commonmark").enable("table")
_PATTERNS = ("*.md", "docs/**/*.md", "deploy/**/*.md", "examples/**/*.md")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. line: of its first fence, from 1; marks: name → text of the comments before it."""

    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str]

    @property
    def where(self) -> str:
        """For messages: `docs/reading.md:12`."""
        return f"{self.page}:{self.line}"


@dataclass(slots=True)
class Page:
    """One markdown file. name: its path under the project's root; code: (line, text) of inline code."""

    name: str
    blocks: list[Block] = field(default_factory=list)
    code: list[tuple[int, str]] = field(default_factory=list)
    links: list[tuple[int, str]] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    @property
    def path(self) -> Path:
        """The file."""
        return ROOT / self.name


def pages(root: Path = ROOT) -> list[Page]:
    """All pages, by name."""
    files = sorted({file for pattern in _PATTERNS for file in root.glob(pattern)})
    return [parse(file.read_text(encoding="utf-8"), str(file.relative_to(root))) for file in files]


def parse(text: str, name: str) -> Page:
    """One page from its markdown."""
    page, marks = Page(name), {}
    tokens = _PARSER.parse(text)
    for i, token in enumerate(tokens):
        if token.type == "html_block":
            marks |= {found[1]: found[2] for found in _MARK.finditer(token.content)}
            page.anchors |= set(re.findall(r'<a (?:id|name)="([^"]+)"', token.content))
        elif token.type == "fence":
            page.blocks.append(
                Block(name, _line(token), token.info.split()[0] if token.info else "", token.content, marks)
            )
            marks = {}
        elif token.type == "inline":
            _inline(page, token, heading=tokens[i - 1].type == "heading_open")
            marks = {}
    return page


def _line(token: Token) -> int:
    return token.map[0] + 1 if token.map else 0


def _inline(page: Page, token: Token, heading: bool) -> None:
    children = token.children or []
    page.code += [(_line(token), child.content) for child in children if child.type == "code_inline"]
    page.links += [(_line(token), str(child.attrs["href"])) for child in children if child.type == "link_open"]
    page.links += [(_line(token), str(child.attrs["src"])) for child in children if child.type == "image"]
    if heading:
        text = "".join(child.content for child in children if child.type in ("text", "code_inline"))
        anchor, n = slug(text), 0
        while anchor in page.anchors:
            n += 1
            anchor = f"{slug(text)}-{n}"
        page.anchors.add(anchor)


def slug(heading: str) -> str:
    """The anchor that GitHub and the site give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
