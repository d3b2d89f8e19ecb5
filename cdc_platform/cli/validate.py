"""`cdc-platform validate`: cdc.yaml without Kafka and Spark; all errors at once, and warnings."""

from pathlib import Path
from typing import Annotated

import typer

from cdc_platform.cli.output import Report, printed
from cdc_platform.config import load_config


@printed
def command(
    config: Annotated[Path, typer.Option("--config", envvar="CDC_CONFIG", help="cdc.yaml")] = Path("cdc.yaml"),
) -> Report:
    """Check cdc.yaml: every error at once, exit code 2; else warnings of what has no effect on what the lake has seen,
    or changes the meaning of its rows. Asks neither Kafka nor Spark."""
    from cdc_platform import advice

    loaded = load_config(config)
    found = advice.warnings(loaded, thorough=True)
    data = {
        "file": str(loaded.file),
        "lake": loaded.lake,
        "sources": [
            {"source": s.name, "format": s.format, "topics": s.topics or [str(s.topic_pattern)]} for s in loaded.sources
        ],
        "bridges": [{"bridge": b.name, "topic": b.topic} for b in loaded.bridges],
        "warnings": found,
    }
    count = len(loaded.sources)
    verdict = f"{loaded.file}: valid, {count} source{'' if count == 1 else 's'}, {len(found) or 'no'} warning"
    verdict += "" if len(found) == 1 else "s"
    return Report(data, shown=[verdict, *(f"warning: {text}" for text in found)])
