"""More changes for a finished demo, while the UI follows it: published, then awaited in the snapshots."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdc_platform.config import Config, load_config
from cdc_platform.demo.folder import ROUNDS, DemoFolderInUse
from cdc_platform.demo.progress import Progress, Say
from cdc_platform.demo.run import as_of_now, compared
from cdc_platform.feeds.feeds import encoders
from cdc_platform.feeds.publish import publish
from cdc_platform.feeds.workload import Transaction, Workload

_LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Followed:
    """transactions, the row changes in them (published to each of `feeds`), and the Kafka records that all feeds made
    of them; seconds until every snapshot showed them; problems: what still differed when the time was up."""

    transactions: int
    row_changes: int
    feeds: int
    kafka_records: int
    seconds: float
    problems: list[str]


def publish_more(folder: Path, transactions: int, wait_s: float, say: Say) -> Followed:
    """Publish `transactions` more and wait until the snapshots equal the source again, at most `wait_s`.

    The shop and its feeds are made again from their seed up to where the demo stopped. say: takes each line of
    progress, the next within 15 s. Raises DemoFolderInUse (no demo has run there), KafkaUnreachable (the UI, and with
    it the broker, isn't running).
    """
    folder = folder.expanduser().absolute()
    if not (folder / ROUNDS).is_file():
        raise DemoFolderInUse(folder, "no finished demo is there; run `cdc-platform demo` first")
    config = load_config(folder / "cdc.yaml")
    before = json.loads((folder / ROUNDS).read_text())
    with Progress(say) as told:
        shop, batch, records = _replayed(config, before, transactions)
        done = publish(as_of_now(records), config.kafka["bootstrap.servers"])
        (folder / ROUNDS).write_text(json.dumps({**before, "rounds": [*before["rounds"], transactions]}))
        changes, feeds = sum(len(t.events) for t in batch), len(config.sources)
        told(
            f"published {len(batch)} transactions, {changes} row changes, to each of {feeds} feeds: "
            f"{done.records} Kafka records"
        )
        seconds, problems = _awaited(config, shop, wait_s, told)
    return Followed(len(batch), changes, feeds, done.records, round(seconds, 1), problems)


def _replayed(config: Config, before: dict[str, Any], transactions: int) -> tuple[Workload, list[Transaction], list]:
    """The shop after these transactions, they themselves, and every feed's records of them."""
    feeds = encoders(config)
    first, *later = [*before["rounds"], transactions]
    shop = Workload(before["seed"], first)
    batch = shop.transactions
    records = _encoded(feeds.values(), batch)
    for count in later:
        batch = shop.advance(count)
        records = _encoded(feeds.values(), batch)  # also of what was sent: an encoder numbers its messages
    return shop, list(batch), records


def _encoded(feeds: Iterable[Any], batch: list[Transaction]) -> list:
    return [record for feed in feeds for record in feed.encode(list(batch))]


def _awaited(config: Config, shop: Workload, wait_s: float, say: Say) -> tuple[float, list[str]]:
    """Seconds until every snapshot equals the shop, and what differs after `wait_s`."""
    started, last = time.monotonic(), -1
    while True:
        rows, problems = compared(config, shop.truth)
        seconds = time.monotonic() - started
        if not problems or seconds > wait_s:
            return seconds, problems
        equal = sum(row["equal"] for row in rows)
        if equal != last:
            behind = ", ".join(dict.fromkeys(row["format"] for row in rows if not row["equal"]))
            say(f"  {equal} of {len(rows)} tables equal; waiting for {behind}")
            last = equal
        time.sleep(_LOOK_EVERY_S)
