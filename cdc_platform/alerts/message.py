"""One message for all that changed between two looks, as each channel shows it. Names and reasons come from the wire:
they are shown as they are, never as markup."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cdc_platform.alerts.problems import Problem

_SHOWN = 20
"""So many problems are listed; of more only the number is told."""


@dataclass(frozen=True, slots=True)
class Message:
    """title: who speaks; problems: what began; over: keys of what ended; pages: URL of Dagster's pages."""

    title: str
    problems: list[Problem]
    over: list[str]
    pages: str | None = None

    @property
    def subject(self) -> str:
        """One line without anything from the wire."""
        found = [_count(len(self.problems), "problem"), _count(len(self.over), "recovered", "recovered")]
        return f"{self.title}: {', '.join(filter(None, found))}"

    @property
    def text(self) -> str:
        """Plain text: the subject, a line per problem, its page below."""
        return "\n".join([self.subject, "", *self._lines()])

    def _lines(self) -> Iterator[str]:
        for problem in self.problems[:_SHOWN]:
            yield _one_line(f"{problem.key}: {problem.why}" if problem.why else problem.key)
            if self.pages and problem.path:
                yield f"    {self.pages}{problem.path}"
        yield from _more(self.problems)
        for key in self.over[:_SHOWN]:
            yield _one_line(f"recovered: {key}")
        yield from _more(self.over)

    @property
    def slack(self) -> str:
        """The text as Slack takes it."""
        subject, _, rest = _escaped(self.text).partition("\n\n")
        return f"*{subject}*\n```\n{rest.replace('```', '` ` `')}\n```"

    @property
    def json(self) -> dict[str, Any]:
        """What a webhook gets; `text` is what Slack's, Mattermost's and Teams' incoming webhooks show: with entities,
        for to all of them `<` begins a link or a mention. The other fields have names as they are."""
        problems = [
            {
                "kind": p.kind,
                "what": p.what,
                "why": p.why,
                "count": p.count,
                "url": f"{self.pages}{p.path}" if self.pages and p.path else None,
            }
            for p in self.problems
        ]
        over = [{"kind": k, "what": what} for k, _, what in (key.partition(": ") for key in self.over)]
        return {"text": _escaped(self.text), "problems": problems, "recovered": over}


def _one_line(text: str) -> str:
    """A text whose characters can all be seen: a line break in a table's name makes no line of its own."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _escaped(text: str) -> str:
    """`&`, `<` and `>` are Slack's control characters, in code blocks too."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _count(n: int, one: str, many: str | None = None) -> str:
    return f"{n} {one if n == 1 else many or one + 's'}" if n else ""


def _more(found: list[Any]) -> list[str]:
    return [f"… and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
