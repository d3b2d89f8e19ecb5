"""More changes for a finished demo, while the UI follows it: published, then awaited in the snapshots."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from cdc_platform.config import load_config
from cdc_platform.demo.feeds import encoders
from cdc_platform.demo.publish import publish
from cdc_platform.demo.run import ROUNDS, DemoFolderInUse, Say, as_of_now, compared
from cdc_platform.demo.workload import Workload

_LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Followed:
    """transactions and records published; seconds until every snapshot showed them; problems: what still differed
    when the time was up."""

    transactions: int
    records: int
    seconds: float
    problems: list[str]


def publish_more(folder: Path, transactions: int, wait_s: float, say: Say) -> Followed:
    """Publish `transactions` more and wait until the snapshots equal the source again, at most `wait_s`.

    The shop and its feeds are made again from their seed up to where the demo stopped. Raises DemoFolderInUse (no
    demo has run there), KafkaUnreachable (the UI, and with it the broker, isn't running).
    """
    folder = folder.expanduser().absolute()
    if not (folder / ROUNDS).is_file():
        raise DemoFolderInUse(folder, "no finished demo is there; run `cdc-platform demo` first")
    config = load_config(folder / "cdc.yaml")
    told = json.loads((folder / ROUNDS).read_text())
    shop, feeds, batch, records = None, encoders(config), [], []
    for count in [*told["rounds"], transactions]:
        if shop is None:
            shop = Workload(told["seed"], count)
            batch = shop.transactions
        else:
            batch = shop.advance(count)
        records = [r for feed in feeds.values() for r in feed.encode(list(batch))]
    assert shop is not None
    done = publish(as_of_now(records), config.kafka["bootstrap.servers"])
    (folder / ROUNDS).write_text(json.dumps({**told, "rounds": [*told["rounds"], transactions]}))
    say(f"published {done.records} records; waiting for the sensor and its runs")
    started = time.monotonic()
    while True:
        problems = compared(config, shop.truth)[1]
        seconds = time.monotonic() - started
        if not problems or seconds > wait_s:
            return Followed(len(batch), done.records, round(seconds, 1), problems)
        time.sleep(_LOOK_EVERY_S)
