"""`cdc-platform inspect TOPIC`: which wire format a topic holds, and why not another."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_platform.cli.cluster import Bootstrap, ConfigFile, OfSource, cluster
from cdc_platform.cli.output import Report, printed, progress


@printed
def command(
    topic: Annotated[str, typer.Argument(help="Kafka topic.")],
    config: ConfigFile = Path("cdc.yaml"),
    source: OfSource = None,
    bootstrap: Bootstrap = None,
    records: Annotated[int, typer.Option(min=1, max=10_000, help="Look at so many of the newest records.")] = 200,
) -> Report:
    """Read a few of a topic's newest records and tell which wire format they are, and why not another. `options` are
    those of the format that the records show.

    Exit code 1: no format reads them. Nothing is committed to Kafka.
    """
    from cdc_platform.changes.recognize import sure, verdicts
    from cdc_platform.formats import FORMATS
    from cdc_platform.kafka.offsets import kafka_state
    from cdc_platform.kafka.sample import newest

    ready, feed = cluster([topic], config, source, bootstrap)
    sample = newest(ready, feed, kafka_state(ready, feed), records)
    progress(f"{sample.num_rows} records of {topic}")
    found = verdicts(sample, FORMATS) if sample.num_rows else []
    how = sure(found)
    data: dict[str, Any] = {
        "topic": topic,
        "records": sample.num_rows,
        "format": found[0].format if how != "none" else None,
        "sure": how,
        "options": ", ".join(f"{n}: {v}" for n, v in found[0].options.items()) if how != "none" else "",
        "formats": [
            {
                "format": v.format,
                "understood": v.understood,
                "parts": v.parts,
                "refused": v.refused,
                "events": ", ".join(f"{n} {kind}" for kind, n in v.events.items() if kind != "error"),
                "why_not": v.why_not,
            }
            for v in found
        ],
    }
    return Report(data, 0 if how != "none" else 1)
