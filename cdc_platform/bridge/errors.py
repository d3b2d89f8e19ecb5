"""What can go wrong between a canal server and Kafka. `retriable` decides: roll back and try again, or end."""

from cdc_platform.errors import CdcError


def _first_line(text: str) -> str:
    """A server sends whole stack traces; the reason stands in their first line."""
    return (text.strip().splitlines() or [""])[0][:500]


class CanalUnreachable(CdcError):
    """No server answered, or a connection broke. Fields: `server`, `problem`."""

    retriable = True

    def __init__(self, server: str, problem: str):
        self.server, self.problem = server, problem
        super().__init__(f"canal server {server}: {problem}")


class CanalRefused(CdcError):
    """The server answered with an error. Fields: `server`, `code` (canal's 4xx), `problem` (its own words).

    Worth a retry: it also refuses while an instance starts or moves, and acks whose batch it has forgotten.
    """

    retriable = True

    def __init__(self, server: str, what: str, code: int, problem: str):
        self.server, self.code, self.problem = server, code, _first_line(problem)
        super().__init__(f"canal server {server} refused {what} (code {code}): {self.problem}")


class CanalLoginRefused(CdcError):
    """User or password are wrong. Fields: `server`, `username`, `problem`."""

    def __init__(self, server: str, username: str, problem: str):
        self.server, self.username, self.problem = server, username, _first_line(problem)
        super().__init__(
            f"canal server {server} refused the login of user {username!r}: {self.problem}. username and password of "
            "the bridge must be those of canal.user and canal.passwd in the server's canal.properties (here the plain "
            "password, there its hash)"
        )


class CanalOutOfStep(CdcError):
    """The server sent something that isn't the answer waited for. Fields: `server`, `problem`. A new connection
    starts in step again."""

    retriable = True

    def __init__(self, server: str, problem: str):
        self.server, self.problem = server, problem
        super().__init__(f"canal server {server}: {problem}")


class CanalUnsupported(CdcError):
    """The server speaks something that the bridge doesn't, and will again: compression, another protocol, a frame
    over the limit. Fields: `server`, `problem`."""

    def __init__(self, server: str, problem: str):
        self.server, self.problem = server, problem
        super().__init__(f"canal server {server}: {problem}")


class CanalBeginsElsewhere(CdcError):
    """What the server sends doesn't begin at or before the place that `begin` names. Fields: `server`, `problem`."""

    def __init__(self, server: str, problem: str):
        self.server, self.problem = server, problem
        super().__init__(f"canal server {server}: {problem}")


class BridgeKafkaFailed(CdcError):
    """Kafka did not take a batch. Fields: `bridge`, `topic`, `problem`."""

    retriable = True

    def __init__(self, bridge: str, topic: str, problem: str):
        self.bridge, self.topic, self.problem = bridge, topic, problem
        super().__init__(f"bridge {bridge}: topic {topic!r}: {problem}")


class BridgeRunning(CdcError):
    """Another process of this machine already runs the bridge. Field: `bridge`."""

    retriable = True

    def __init__(self, bridge: str):
        self.bridge = bridge
        super().__init__(f"bridge {bridge}: another process is running it; two would take each other's batches")
