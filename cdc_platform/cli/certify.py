"""`cdc-platform certify SOURCE [TABLE]`: what the platform answers for each table. No Spark."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_platform.cli.output import Report, printed
from cdc_platform.config import load_config
from cdc_platform.units import when

if TYPE_CHECKING:
    from cdc_platform.certificate import Certificate
    from cdc_platform.lake.beside import Beside


@printed
def command(
    source: Annotated[str, typer.Argument(help="Source of cdc.yaml.")],
    table: Annotated[str | None, typer.Argument(help="db.table; default: all tables of the source.")] = None,
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Certify tables: offsets accounted for, complete up to when, equal to the source when last compared.

    proven: nothing is wrong, and the last comparison with the source found it equal. consistent: nothing is wrong, and
    not all is proven. broken: rows may be missing or wrong, with the reasons; exit code 1. What changed is kept in the
    table `certificates`. Histories and typed changes are shown with their state, which no verdict is about."""
    from cdc_platform import certificate
    from cdc_platform.reading import described

    loaded = load_config(config)
    feed = loaded.source(source)
    wanted = described.find(loaded, table, source).name if table else None
    every = sorted(certificate.of_source(loaded, feed).items())
    found = certificate.with_untold(loaded, (c for name, c in every if wanted in (None, name)))
    certificate.issue(loaded, found)
    data = {"source": source, "tables": [{"table": ".".join(c.name), **asdict(c)} for c in found]}
    broken = any(c.verdict == certificate.BROKEN for c in found)
    return Report(data, 1 if broken else 0, shown=_shown(found))


def _shown(found: "list[Certificate]") -> dict[str, Any]:
    """A line per table, what belongs to the source, and the reasons."""
    if not found:
        return {"tables": "none yet: `cdc-platform run` makes them"}
    facts = found[0].facts
    return {
        **{k: facts[k] for k in ("landed", "accounted", "lost", "missing")},
        **_reached(found),
        "decoder versions": ", ".join(facts["decoder_versions"]),
        **({"erased": [_erasure(e) for e in facts["erasures"]]} if facts["erasures"] else {}),
        "tables": [_row(c) for c in found],
        **({"beside them": [_beside(b) for b in kept]} if (kept := [b for c in found for b in c.beside]) else {}),
        **({"not told by the feed": untold} if (untold := [*_untold(found)]) else {}),
        "reasons": [{"table": ".".join(c.name), "why": r} for c in found for r in c.reasons] or "none",
    }


def _reached(found: "list[Certificate]") -> dict[str, Any]:
    """Position and GTIDs up to which tables are complete; once, where they are the same of all."""
    names = {"position": "complete up to position", "gtids": "complete up to GTIDs"}
    told = {shown: {c.facts[k] for c in found} for k, shown in names.items()}
    if all(len(of) == 1 for of in told.values()):
        return {shown: text for shown, of in told.items() if (text := of.pop())}
    each = [{"table": ".".join(c.name), "position": c.facts["position"], "GTIDs": c.facts["gtids"]} for c in found]
    return {"complete up to": each}


def _untold(found: "list[Certificate]") -> Iterator[dict[str, str]]:
    for one in found:
        for column, texts in one.facts["not_told"].items():
            whole = "(whole rows)" if column == "*" else column
            yield {"table": ".".join(one.name), "column": whole, "what": "; ".join(texts)}


def _erasure(one: dict[str, Any]) -> dict[str, Any]:
    left = "not finished: its command once more" if one["left"] is None else one["left"]
    again = {"sent again": one["again"]} if one["again"] else {}
    return {**{k: one[k] for k in ("number", "table", "records")}, "at": when(one["at"]), "left": left, **again}


def _beside(one: "Beside") -> dict[str, Any]:
    return {"table": ".".join(one.name), "kind": one.kind, "state": one.state, "reason": one.reason}


def _row(one: "Certificate") -> dict[str, Any]:
    compared = one.facts["compared"]
    oldest = min(c["as_of"] or c["at"] for c in compared) if compared else None
    return {
        "table": ".".join(one.name),
        "verdict": one.verdict,
        "complete up to": one.complete_up_to and when(one.complete_up_to),
        "compared": oldest and when(oldest),
        "rows then": sum(c["rows"] for c in compared) if compared else None,
    }
