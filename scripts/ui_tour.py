"""The pictures of docs/ui-tour.md: Dagster's pages on a finished demo, by a headless Chromium.

    make demo
    .venv/bin/pip install playwright && sudo apt-get install -y chromium
    .venv/bin/python -m scripts.ui_tour --config .cdc/demo/cdc.yaml

It starts `cdc-platform ui` on a free port, erases a row, publishes one message that can't be read, waits until the
sensors have reported, launches a replay, takes the pictures and stops the UI. Its configuration is that of the demo
with a history and a server to load from (which isn't asked), in a file beside it.
"""

import argparse
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from cdc_platform.config import load_config
from cdc_platform.setup.ports import free_port
from cdc_platform.spark.connect import answers

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "ui"
MAX_BYTES = 200_000
_START_S, _PAGE_S, _RUN_S = 300, 60, 900
_TABLE = "/assets/snapshots/{source}/shop/orders?view="

Act = Callable[[Any, str], None]
"""What is done on a page before its picture is taken, of a source."""


def whole_message(page: Any, _: str) -> None:
    """A run's output, with all of its metadata."""
    page.get_by_text("STEP_OUTPUT").first.hover()
    page.get_by_text("View full message").first.click()


def filled_in(page: Any, source: str) -> None:
    """The launchpad of `load` with a source and a table."""
    page.get_by_placeholder("Partition").click()
    page.keyboard.type(source)
    page.wait_for_timeout(2000)  # the list of partitions
    page.keyboard.press("Enter")
    page.wait_for_timeout(5000)  # the partition's own configuration
    page.locator(".CodeMirror").first.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(yaml.safe_dump(LOAD, sort_keys=False))


LOAD = {"ops": {"load_tables": {"config": {"tables": ["shop.orders"], "chunk_rows": 50_000, "end_history": True}}}}
# name of the picture, path of the page, text that is there once it is drawn, width, height, what is done there
PAGES: list[tuple[Any, ...]] = [
    ("health", "/assets/health?view=overview", "healthy_sources", 2000, 1000),
    ("catalog", "/assets?asset-selection=key%3A%22*orders*%22", "orders", 1500, 560),
    ("table", _TABLE + "overview", "Columns", 1500, 1000),
    ("checks", _TABLE + "checks", "not_stopped", 1500, 700),
    ("quarantine", "/assets/quarantine/{source}?view=checks", "nothing_is_held", 1500, 700),
    ("history", "/assets/history/{source}/shop/orders?view=overview", "_cdc_valid_from", 1500, 1560),
    ("evidence", _TABLE + "events", "source_landed", 1500, 1400),
    ("replay", "/runs/{replay}", "STEP_OUTPUT", 1500, 940, whole_message),
    ("load", "/locations/cdc/jobs/load/playground", "load_tables", 1500, 560, filled_in),
    ("lineage", "/assets/snapshots/{source}?view=lineage&lineageScope=upstream&lineageDepth=9", "snapshots", 1500, 700),
    ("automation", "/automation", "checkpoint_sensor", 1500, 500),
    ("runs", "/runs", "Runs", 1500, 560),
]


def main() -> None:
    """Take all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path(".cdc/demo/cdc.yaml"))
    parser.add_argument("--source", default="shop_dts", help="the source whose tables are shown")
    parser.add_argument("--replayed", default="shop_canal", help="the source that is replayed")
    parser.add_argument("--settle", type=float, default=240, help="seconds for sensors and runs to report")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--only", nargs="*", default=[page[0] for page in PAGES])
    given = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    config = with_more(given.config, given.source)
    with ui(config) as url, browser(given.chromium) as page:
        erase_one(config, given.source)
        break_one(config, given.source)
        time.sleep(given.settle)
        of = {"source": given.source, "replay": replayed(url, given.replayed)}
        for name, path, text, width, height, *acts in PAGES:
            if name in given.only:
                see(page, url + path.format(**of), text, (width, height))
                for act in acts:
                    act(page, given.source)
                    page.wait_for_timeout(6000)
                take(page, FOLDER / f"{name}.png")


def with_more(config: Path, source: str) -> Path:
    """The demo's configuration with a history of a table and a server to load from, in a file beside it."""
    given = yaml.safe_load(config.read_text(encoding="utf-8"))
    [one] = (s for s in given["sources"] if s["name"] == source)
    one |= {"tables": {"history": ["shop.orders"]}, "reconcile": {"dsn_env": "SHOP_DSN"}}
    file = config.with_name("tour.yaml")
    file.write_text(yaml.safe_dump(given, sort_keys=False), encoding="utf-8")
    return file


@contextmanager
def ui(config: Path) -> Iterator[str]:
    """`cdc-platform ui` on a free port, with its URL."""
    port = free_port()
    program = Path(sys.executable).with_name("cdc-platform")
    env = {**os.environ, "CDC_CONFIG": str(config.absolute())}
    process = subprocess.Popen([str(program), "ui", "--port", str(port)], env=env, start_new_session=True)
    try:
        deadline = time.monotonic() + _START_S
        while not answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("cdc-platform ui didn't start")
            time.sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(60)


def erase_one(config: Path, name: str) -> None:
    """One order's bytes out of the lake of a source."""
    from cdc_platform.lake import queries, stores
    from cdc_platform.tables import SNAPSHOT_PATH

    loaded = load_config(config)
    orders = SNAPSHOT_PATH.of(stores.lake(loaded), name, ("shop", "orders"))
    [row] = queries.query("SELECT min(id) AS id FROM t WHERE id > 0", t=orders)
    program = Path(sys.executable).with_name("cdc-platform")
    given = [name, "shop.orders", str(row["id"]), "--follow", "--yes", "--config", str(config.absolute())]
    subprocess.run([str(program), "erase", *given], check=True)


def replayed(url: str, source: str) -> str:
    """The id of a run of the job `replay`, by another time zone, that has ended."""
    from dagster import DagsterRunStatus
    from dagster_graphql import DagsterGraphQLClient

    client = DagsterGraphQLClient("127.0.0.1", port_number=int(url.rpartition(":")[2]))
    config = {"ops": {"replay_source": {"config": {"options": {"time_zone": "Asia/Shanghai"}}}}}
    run = client.submit_job_execution("replay", run_config=config, tags={"dagster/partition": source})
    deadline = time.monotonic() + _RUN_S
    while (status := client.get_run_status(run)) is not DagsterRunStatus.SUCCESS:
        if status in (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED) or time.monotonic() > deadline:
            raise SystemExit(f"the run {run} of replay: {status.value}")
        time.sleep(2)
    return run


def break_one(config: Path, name: str) -> None:
    """One message that no decoder takes, to the first topic of a source."""
    from confluent_kafka import Producer

    loaded = load_config(config)
    source = loaded.source(name)
    producer = Producer({"bootstrap.servers": loaded.kafka_properties(source)["bootstrap.servers"]})
    producer.produce(source.topics[0], b"this is no message of a database", partition=0)
    if producer.flush(60):
        raise SystemExit("the local broker doesn't answer")


@contextmanager
def browser(chromium: str) -> Iterator[Any]:
    """A page of a headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield running.new_page()
        running.close()


def see(page: Any, url: str, text: str, size: tuple[int, int]) -> None:
    """Open a page and wait until it is drawn."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(url, wait_until="domcontentloaded", timeout=_PAGE_S * 1000)
    page.get_by_text(text).first.wait_for(timeout=_PAGE_S * 1000)
    page.wait_for_timeout(6000)  # graphs are laid out, plots are drawn
    if (long := page.get_by_text("[Show Markdown]")).count():
        long.first.click()
        page.wait_for_timeout(2000)


def take(page: Any, file: Path) -> None:
    """One picture, with few enough colours to be small."""
    from PIL import Image

    picture = Image.open(io.BytesIO(page.screenshot()))
    picture.convert("RGB").quantize(64).save(file, optimize=True)
    length = file.stat().st_size
    if length > MAX_BYTES:
        raise SystemExit(f"{file.name} has {length} bytes, more than {MAX_BYTES}")
    sys.stderr.write(f"{file.name}: {length:,} bytes\n")


if __name__ == "__main__":
    main()
