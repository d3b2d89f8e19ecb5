"""`python -m cdc_platform.automation.class_archive` makes the class-data archive of Spark's JVM where it is missing: by
a session that uses what the stages use."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from cdc_platform.errors import CdcError
from cdc_platform.lake import stores
from cdc_platform.setup.java import java_env
from cdc_platform.spark.class_archive import QUIET, archive

_TIMEOUT_S = 600


def ensure() -> Path | None:
    """Makes the archive where it is missing; None where that can't be done: nothing needs it."""
    target = archive()
    if target.is_file():
        return target
    if not os.access(target.parent, os.W_OK) or " " in str(target):
        return None
    _say("preparing Spark for quick starts (once; a minute)")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".archive-") as temp:
        made = Path(temp, target.name)
        command = [sys.executable, "-m", "cdc_platform.automation.class_archive", "--exercise", temp, str(made)]
        env = {**os.environ, **java_env()}
        try:
            done = subprocess.run(
                command, capture_output=True, stdin=subprocess.DEVNULL, env=env, timeout=_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return None
        if done.returncode or not made.is_file():
            return None
        for old in target.parent.glob("spark-*.jsa"):
            old.unlink(missing_ok=True)
        made.rename(target)  # whole or not at all
    return target


def _exercise(folder: Path, made: Path) -> None:
    """Uses what sessions use, in one that writes the archive at its end."""
    from pyspark import SparkContext

    from cdc_platform.changelog import run as changelog
    from cdc_platform.config import parse_config
    from cdc_platform.snapshots import run as snapshots
    from cdc_platform.spark import delta_sql
    from cdc_platform.spark.session import open_session
    from cdc_platform.tables import CHANGES

    settings = {
        "lake": str(folder / "lake"),
        "sources": [{"name": "s", "format": "debezium", "topics": ["t"]}],
    }
    java = f"-XX:ArchiveClassesAtExit={made} {QUIET}"
    settings["spark"] = {"master": "local[2]", "conf": {"spark.driver.extraJavaOptions": java}}
    config = parse_config(settings, folder / "cdc.yaml")
    spark = open_session(config)
    source = config.source("s")
    delta_sql.ensure(CHANGES, CHANGES.at(stores.lake(config), format=source.format, source=source.name))
    changelog.run(spark, config, source)
    snapshots.run(spark, config, source)
    path = stores.lake(config).at("t")
    delta_sql.create(spark, path, "k BIGINT, v STRING", {"delta.enableDeletionVectors": "true"}, "exercise")
    rows = spark.range(100).selectExpr("id AS k", "CAST(id AS STRING) AS v")
    delta_sql.append_once(rows.mapInArrow(lambda batches: batches, rows.schema), path, "exercise", 0)
    rows.createOrReplaceTempView("s")
    spark.sql(
        f"MERGE INTO {delta_sql.delta(path)} AS t USING s ON t.k = s.k + 50 WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    delta_sql.read(spark, path).groupBy("v").count().collect()
    gateway = SparkContext._gateway  # pyright: ignore[reportPrivateUsage]  the JVM: it writes when it ends
    spark.stop()
    if gateway is not None and (jvm := getattr(gateway, "proc", None)) is not None:
        jvm.stdin.close()
        jvm.wait(_TIMEOUT_S)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201  a step of set-up


def main() -> int:
    """Exit code 0, also where there is no archive in the end; 1 without Java or jars."""
    if sys.argv[1:2] == ["--exercise"]:
        _exercise(Path(sys.argv[2]), Path(sys.argv[3]))
        return 0
    try:
        if ensure() is None:
            _say("no archive of Spark's classes could be made: sessions start some seconds later")
    except CdcError as error:
        _say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
