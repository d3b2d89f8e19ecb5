"""Which tables of a source were changed and couldn't be brought up to date in the catalog: the next run tries again,
whether it changes them or not. Kept under `state_dir`; where that is lost, the next try is after the next change."""

import json
import logging
from collections.abc import Set
from pathlib import Path

from cdc_platform.config import Config, Source
from cdc_platform.tables import Name, as_name

log = logging.getLogger(__name__)


def due(config: Config, source: Source) -> set[Name]:
    """Those of the last run."""
    try:
        return {as_name(*name) for name in json.loads(_file(config, source).read_text(encoding="utf-8"))}
    except (OSError, ValueError):
        return set()


def keep(config: Config, source: Source, names: Set[Name]) -> None:
    """Those of this run."""
    file = _file(config, source)
    try:
        if not names:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(sorted(names)), encoding="utf-8")
        part.replace(file)
    except OSError as error:
        log.warning("catalog: %d tables can't be noted for another try: %s", len(names), error)


def _file(config: Config, source: Source) -> Path:
    return config.state_dir / "catalog" / f"{source.slug}.json"
