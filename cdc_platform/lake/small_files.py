"""Small files of the platform's own tables put together while they are written: each batch leaves one, a source has
thousands of batches a day, and whoever asks such a table reads them all. No Spark here."""

from contextlib import suppress
from urllib.parse import unquote

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import commits, copies, log_state
from cdc_platform.lake.data_files import Output, Sink, read, units
from cdc_platform.lake.store import File

MANY = 16
"""Small files of a partition that are made one."""
_SMALL = 256 << 10
"""Bytes of a file that is large enough to stay as it is."""


def put_together(sink: Sink) -> None:
    """Makes the small files of a partition one, where there are many: the same rows, in a commit that changes no data.
    For tables that nobody takes commit by commit. Raises as commits.replace, but where another process does the same
    at this moment."""
    path, partition = sink.table, dict(sink.partition)
    now = log_state.now(path, look=False)
    if now is None or now.protocol["minReaderVersion"] > 1:  # deletion vectors, mapped columns
        return
    small = [add for add in now.adds if add["partitionValues"] == partition and add["size"] < _SMALL]
    if len(small) < MANY:
        return
    copy = copies.of(path) if path.remote else None
    names = [unquote(add["path"]) for add in small]
    out = Output(sink)
    with suppress(LakeChanged):
        for unit in units([File(copy.store if copy else path, name) for name in names], whole=True):
            for batch in read(unit, sink.schema):
                out.write(batch)
        written = out.close()
        commits.replace(sink, names, [written] if written else [])
