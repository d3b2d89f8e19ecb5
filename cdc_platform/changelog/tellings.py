"""Messages that were decoded again: which telling of each counts. It is the newest; those before were taken back."""

from urllib.parse import unquote

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import delta_table, log_files
from cdc_platform.lake.store import Store


def numbers(changes: Store, wanted: set[str], version: int | None) -> dict[str, int]:
    """Which commit brought each of these files: the newer of two has the newer telling of a message. One that put files
    in place of others (an erasure) brought nothing: the log names them in the commits that brought those, too. Raises
    LakeChanged where the log doesn't go back to it."""
    if len(wanted) < 2:
        return dict.fromkeys(wanted, 0)
    found: dict[str, int] = {}
    for at in range(delta_table.version(changes) if version is None else version, -1, -1):
        try:
            actions = list(log_files.actions(changes, at))
        except FileNotFoundError:
            raise LakeChanged(changes.uri(), f"commit {at} is gone from its log") from None
        if not any("remove" in action for action in actions):
            added = {unquote(action["add"]["path"]) for action in actions if "add" in action}
            found.update(dict.fromkeys(added & wanted, at))
        if len(found) == len(wanted):
            break
    return found
