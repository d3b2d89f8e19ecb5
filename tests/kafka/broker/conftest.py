from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from cdc_platform.kafka.broker import BrokerInfo, status


def _client(info: BrokerInfo) -> AdminClient:
    return AdminClient({"bootstrap.servers": info.bootstrap_servers, "log_level": 0})


@pytest.fixture
def admin(broker: BrokerInfo) -> AdminClient:
    return _client(broker)


@pytest.fixture
def own_home(tmp_path: Path) -> Iterator[Path]:
    """A home for a broker that the test starts; whatever still runs there at the end is killed."""
    home = tmp_path / "own broker, with a comma"
    yield home
    if (pid := status(home).pid) is not None:
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()


@pytest.fixture
def admin_of() -> Callable[[BrokerInfo], AdminClient]:
    return _client
