"""Which store a lake has."""

from urllib.parse import urlsplit
from urllib.request import url2pathname

from cdc_platform.config import Config
from cdc_platform.config.storage import Storage, kind
from cdc_platform.errors import ConfigError
from cdc_platform.lake.folder import Folder
from cdc_platform.lake.object_files import location
from cdc_platform.lake.object_store import ObjectStore
from cdc_platform.lake.store import Store


def lake(config: Config) -> Store:
    """The lake of a configuration. Raises ConfigError."""
    return of(config.lake, config.storage)


def messages(config: Config) -> Store:
    """The lake whose landing and envelopes the stages behind them read: the configuration's own, but in a replay."""
    return of(config.replay.lake, config.storage) if config.replay else lake(config)


def of(uri: str, storage: Storage) -> Store:
    """The store at an absolute path or a URI. It may go to other machines: they reach the same one, whatever address
    their environment gives. Raises ConfigError where there is none for its scheme, or no address can be."""
    if kind(uri) != "folder":
        location(uri)
        return ObjectStore(f"s3://{uri.rstrip('/').split('://', 1)[1]}", storage.settled())
    path = url2pathname(urlsplit(uri).path) if uri.lower().startswith("file:") else uri
    if not path.startswith("/"):
        raise ConfigError("lake", f"{uri!r} is no absolute path")
    return Folder(path.rstrip("/") or "/", storage)
