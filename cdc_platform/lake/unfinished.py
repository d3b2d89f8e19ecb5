"""Whether a source's new holder has to look for what earlier ones left undone: not again while nobody else has held it,
and this process noted nothing new. No Spark here."""

from cdc_platform.lake.store import Store

_looked: dict[tuple[str, str], int] = {}
"""Lake and source → number of the newest lease under which this process has looked."""


def is_possible(lake: Store, source: str, lease: int) -> bool:
    """Whether there may be something. lease: the number of the one that is held."""
    return _looked.get((lake.root, source)) != lease - 1


def looked(lake: Store, source: str, lease: int) -> None:
    """All that was found is done."""
    _looked[lake.root, source] = lease


def noted(lake: Store, source: str) -> None:
    """This process is about to note something to be done."""
    _looked.pop((lake.root, source), None)
