"""The benchmarks, each with its check: what is measured is also right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cdc_platform.bench.chain import Chain, trials
from cdc_platform.bench.figures import Trial, machine, ratios, stage_rows
from cdc_platform.bench.latency import measure
from cdc_platform.bench.settings import Say, Settings, broker, check, config_of, folder, lake_config
from cdc_platform.config import parse_config

_DDL_TABLES = 25


def run_bench(settings: Settings, say: Say) -> dict[str, Any]:
    """machine, settings, stages (one row per format and stage), ratios (one per format), increments (one per size and
    kind of keys), latency (one row), differences. Where the chain makes wrong tables nothing more is measured.

    Raises ConfigError, SetupError, BrokerError, KafkaUnreachable, PublishFailed.
    """
    check(settings)
    done: list[Trial] = []
    found: dict[str, Any] = {"differences": []}
    with folder(settings.folder) as work:
        if "chain" in settings.what:
            with broker(work, say) as info:
                done = trials(Chain(work, info, settings, say))
        if not any(t.differences for t in done):
            for what in (w for w in _MEASURES if w in settings.what):
                rows = _MEASURES[what](work, settings, say)
                found |= {**rows, "differences": found["differences"] + rows["differences"]}
    return _result(settings, done, found)


def _increments(work: Path, settings: Settings, say: Say) -> dict[str, Any]:
    """`increments`: per size and kind of keys seconds of an increment; `differences`."""
    from cdc_platform.bench.increments import Table, measurements
    from cdc_platform.spark.session import open_session

    say("starting Spark")
    rows, differences = [], []
    for size in settings.sizes:
        config = config_of(work, settings, f"increments-{size}", "canal_json", "none", "127.0.0.1:1")
        table = Table(open_session(config), config, config.sources[0], size)
        say(f"a table of {size} rows")
        table.fill()
        say(f"increments of {settings.changes} changes")
        rows += measurements(table, settings.changes, settings.repeats)
        differences += table.differences()
    return {"increments": rows, "differences": differences}


def _breadth(work: Path, settings: Settings, say: Say) -> dict[str, Any]:
    """`breadth`: a row per round of changes of many tables; `touched`: one per what users touch of them."""
    from cdc_platform.bench import touched
    from cdc_platform.bench.breadth import Tables, measurements
    from cdc_platform.spark.session import open_session

    with broker(work / "breadth", say) as info:
        servers = str(info.bootstrap_servers)
        written = lake_config(work, settings, "breadth-lake", "canal_json", "breadth", servers)
        config = parse_config(written, work / "cdc.yaml")
        say(f"{settings.tables} tables")
        tables = Tables("breadth", settings.tables, settings.partitions, settings.keyless)
        some = max(1, settings.tables * 3 // 10)
        rows = measurements(open_session(config), config, servers, tables, settings.changes, some)
        say("status, sensors and definitions")
        seen = touched.measurements(config, written, settings.tables)
        return {"breadth": rows, "touched": seen, "differences": tables.differences(config)}


def _ddl(work: Path, settings: Settings, say: Say) -> dict[str, Any]:
    """`ddl`: rows of a history of DDL."""
    from cdc_platform.bench.ddl import measurements
    from cdc_platform.spark.session import open_session

    with broker(work / "ddl", say) as info:
        servers = str(info.bootstrap_servers)
        config = config_of(work, settings, "ddl-lake", "canal_json", "ddl", servers)
        say("a history of DDL")
        rows, differences = measurements(open_session(config), config, servers, _DDL_TABLES)
        return {"ddl": rows, "differences": differences}


def _explain(work: Path, settings: Settings, say: Say) -> dict[str, Any]:
    """`explain`: a row per question."""
    from cdc_platform.bench.explained import FORMAT, measurements

    with broker(work / "explain", say) as info:
        bench = Chain(work / "explain", info, settings, say)
        say(f"{settings.rows} changes")
        trial = bench.trial(FORMAT, "explain", settings.rows, settings.keys)
        say("questions")
        config = bench.config(f"bench-{FORMAT}-explain", FORMAT)
        rows, wrong = measurements(config, settings.rows, min(settings.rows, settings.keys))
        return {"explain": rows, "differences": trial.differences + wrong}


def _latency(work: Path, settings: Settings, say: Say) -> dict[str, Any]:
    """`latency`: one row."""
    say("latency: starting the platform")
    latency, differences = measure(work / "latency", settings)
    return {"latency": [latency], "differences": differences}


_MEASURES: dict[str, Callable[[Path, Settings, Say], dict[str, Any]]] = {
    **{"increments": _increments, "breadth": _breadth, "ddl": _ddl},
    **{"explain": _explain, "latency": _latency},
}
"""What is measured beside the chain, in this order: its rows by their names, and `differences`."""
_ROWS = ("increments", "breadth", "touched", "ddl", "explain", "latency")


def _result(settings: Settings, trials: list[Trial], found: dict[str, Any]) -> dict[str, Any]:
    by_format = {name: [t for t in trials if t.format == name] for name in settings.formats}
    return {
        "machine": machine(settings.master),
        "rows": settings.rows,
        "keys": settings.keys,
        "repeats": settings.repeats,
        "stages": [row for of in by_format.values() if of for row in stage_rows(_events(settings, of[0]), of)],
        "ratios": [ratios(of) for of in by_format.values() if of],
        **{name: found.get(name, []) for name in _ROWS},
        "differences": [f"{t.format}: {line}" for t in trials for line in t.differences] + found["differences"],
    }


def _events(settings: Settings, trial: Trial) -> int:
    """Row changes, or records of a topic of which no more is known."""
    return settings.rows if settings.topic is None else trial.records
