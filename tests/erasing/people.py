"""A table of people in a lake that a real broker feeds, and questions about it."""

from pathlib import Path
from typing import Any

from cdc_platform.erasing.run import Erasure
from cdc_platform.feeds.compare import read_snapshot
from cdc_platform.snapshots.target import Target

PEOPLE = "(id int NOT NULL PRIMARY KEY, name varchar(60), mail varchar(60), born date)"
SECRET, MAIL = "Zebulon Quartermain", "zebulon@quartermain.example"


def filled(w: Any, name: str) -> None:
    """Ten people, one of whom is the subject (7), with a past."""
    w.db.create(name, PEOPLE)
    rows = [f"({i}, 'person {i}', 'p{i}@example.org', '2000-01-01')" for i in range(10) if i != 7]
    w.db.run(f"INSERT INTO {name} VALUES {', '.join(rows[:5])}, (7, '{SECRET}', 'old-{MAIL}', '1999-09-09')")
    w.db.run(f"INSERT INTO {name} VALUES {', '.join(rows[5:])}")
    w.publish()
    w.catch_up()
    w.db.run(f"UPDATE {name} SET mail = '{MAIL}' WHERE id = 7", f"UPDATE {name} SET mail = 'new' WHERE id = 2")
    w.publish()
    w.catch_up()


def lake(w: Any) -> Path:
    return Path(w.config.lake)


def rows(w: Any, name: str) -> dict[int, Any]:
    path = Target.of(w.config, w.source.name, "oracle", name).snapshot.uri()
    return {r["id"]: {k: v for k, v in r.items() if not k.startswith("_")} for r in read_snapshot(path).to_pylist()}


def erasure(w: Any, name: str, key: str = "7", *, follow: bool = False) -> Erasure:
    return Erasure.of(w.config, w.source, f"oracle.{name}", key, follow=follow, told=lambda _: None)
