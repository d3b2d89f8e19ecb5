"""What the fixtures decode to, and by which version of each format: `tests/fixtures/decoders.json`.

A lake's rows say the version of the decoder that read them, so what a version makes of the same bytes stays the same.
Of each scenario the file has a digest of its messages and one of its events. `python -m scripts.decoders`
renews it, and refuses where other events come of the same messages by the same version: raise the format's `version`
first. A test holds the file equal to what would be written.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures"
FILE = FIXTURES / "decoders.json"
_EVENTS = ".expected.json"

Recorded = dict[str, dict[str, Any]]
"""Format → its `version`, and `scenarios`: name → digests of its messages and events."""


def main() -> None:
    """Renew the file."""
    before, now = recorded(), present()
    if wrong := refused(before, now):
        sys.exit("\n".join(wrong))
    FILE.write_text(text(now), encoding="utf-8")


def recorded() -> Recorded:
    """What the file says."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def present(fixtures: Path = FIXTURES) -> Recorded:
    """What it should say."""
    from cdc_platform.formats import FORMATS

    return {name: {"version": f.version, "scenarios": _scenarios(fixtures / name)} for name, f in FORMATS.items()}


def refused(before: Recorded, now: Recorded) -> list[str]:
    """Why the file mustn't be renewed: formats that decode otherwise by the version of before."""
    found = []
    for name in (n for n in now if n in before and now[n]["version"] == before[n]["version"]):
        was = before[name]["scenarios"]
        if changed := [s for s, told in now[name]["scenarios"].items() if s in was and _otherwise(was[s], told)]:
            found.append(f"{name}: raise its version, by which {', '.join(changed)} decoded to other events before")
    return found


def text(of: Recorded) -> str:
    """The file."""
    return json.dumps(of, indent=1) + "\n"


def _otherwise(before: str, now: str) -> bool:
    """Whether the messages are the same and the events aren't."""
    return before != now and before.partition(" ")[0] == now.partition(" ")[0]


def _scenarios(folder: Path) -> dict[str, str]:
    names = sorted(path.name.removesuffix(_EVENTS) for path in folder.glob(f"*{_EVENTS}"))
    return {n: f"{_digest(folder / f'{n}.json')} {_digest(folder / f'{n}{_EVENTS}')}" for n in names}


def _digest(file: Path) -> str:
    """Of what a file says, however it is laid out."""
    said = json.dumps(json.loads(file.read_text(encoding="utf-8")), sort_keys=True)
    return hashlib.blake2b(said.encode(), digest_size=6).hexdigest()


if __name__ == "__main__":
    main()
