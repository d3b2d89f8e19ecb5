"""One family of errors. Each keeps its facts as fields, builds its own message and says whether a retry
makes sense: Dagster must know whether to raise a retry or to give up."""

from collections.abc import Iterable, Sequence


class CdcError(Exception):
    """Root of all errors raised on purpose. `retriable`: the same call may succeed later, unchanged. `exit_code` of a
    command that ends with it: 2 where the command or the configuration has to be changed, else 1."""

    retriable = False
    exit_code = 1

    @property
    def lines(self) -> list[str]:
        """The message for people, line by line."""
        return [str(self)]


class ConfigError(CdcError):
    """A key or value of cdc.yaml is wrong. Fields: `key` (dotted path), `problem`, `valid` (what would have worked)."""

    exit_code = 2

    def __init__(self, key: str, problem: str, valid: Iterable[str] = ()):
        self.key, self.problem, self.valid = key, problem, tuple(valid)
        hint = f"; valid: {', '.join(self.valid)}" if self.valid else ""
        super().__init__(f"{key}: {problem}{hint}")


class ConfigErrors(ConfigError):
    """Several keys or values of cdc.yaml are wrong. Fields: those of the first, and `errors`: key, problem and valid
    of each."""

    def __init__(self, errors: Iterable[ConfigError]):
        found = list(errors)
        super().__init__(found[0].key, found[0].problem, found[0].valid)
        self.errors = [{"key": e.key, "problem": e.problem, "valid": e.valid} for e in found]
        self.args = (f"{len(found)} errors in the configuration: " + " | ".join(map(str, found)),)
        self._lines = [f"{len(found)} errors in the configuration", *map(str, found)]

    @property
    def lines(self) -> list[str]:
        """What people read: one error a line."""
        return self._lines


class SetupError(CdcError):
    """Something the machine lacks (Java, jars). The message ends with the one command that mends it."""

    exit_code = 2


class KafkaUnreachable(CdcError):
    """No broker answered. Fields: `source`, `servers`."""

    retriable = True

    def __init__(self, source: str, servers: str, problem: str):
        self.source, self.servers = source, servers
        super().__init__(f"source {source}: no answer from Kafka at {servers}: {problem}")


class KafkaAccessDenied(CdcError):
    """The cluster answers, and refuses us: a wrong password, certificate or mechanism, or a right that is missing.
    Fields: `source`, `servers`, `problem`."""

    exit_code = 2

    def __init__(self, source: str, servers: str, problem: str):
        self.source, self.servers, self.problem = source, servers, problem
        super().__init__(f"source {source}: Kafka at {servers} refuses access: {problem}")


class LakeNotShared(CdcError):
    """An executor doesn't see a folder of the lake, or the driver a file that one wrote. Field: `file`."""

    exit_code = 2

    def __init__(self, file: str):
        self.file = file
        super().__init__(
            f"{file}: driver and executors don't share the lake: it has to be a folder that all of them see under the "
            "same path"
        )


class SparkUnreachable(CdcError):
    """The Spark Connect server doesn't answer, or not to us. Fields: `remote`, `problem`."""

    retriable = True

    def __init__(self, remote: str, problem: str):
        self.remote, self.problem = remote, problem
        super().__init__(f"no session from the Spark Connect server at {remote}: {problem}")


class OffsetsLost(CdcError):
    """Offsets that were never landed can't be read any more. Fields: `source`, `losses`.

    `losses` holds one dict per partition: topic, partition, from_offset, to_offset (exclusive), why.
    """

    def __init__(self, source: str, losses: list[dict]):
        self.source, self.losses = source, losses
        lines = "; ".join(
            f"{x['topic']}[{x['partition']}] offsets {x['from_offset']}..{x['to_offset'] - 1} ({x['why']})"
            for x in losses
        )
        super().__init__(
            f"source {source}: records are gone from Kafka: {lines}. Nothing was landed. To go on without them "
            f"and record the gap in offset_ledger, set `on_lost_offsets: accept` for this source and run again."
        )


class TopicCompacted(CdcError):
    """Kafka compacts topics: changes go before they were landed, and nothing shows it. Fields: `source`, `topics`."""

    def __init__(self, source: str, topics: list[str]):
        self.source, self.topics = source, topics
        super().__init__(
            f"source {source}: Kafka compacts {', '.join(topics)} (cleanup.policy): changes that a later one of their "
            "key follows go before they are landed, deletes too, and nothing shows it. Nothing was landed. Set "
            "cleanup.policy=delete for the topic; or, to go on with what is left, `on_lost_offsets: accept` for this "
            "source."
        )


class UnknownType(CdcError):
    """A MySQL type text that no rule reads. Field: `type_text`."""

    def __init__(self, type_text: str):
        self.type_text = type_text
        super().__init__(f"unknown MySQL type {type_text!r}")


class TableStopped(CdcError):
    """A table can't be kept as a snapshot. Fields: `source`, `name`
    (its parts), `reason`."""

    def __init__(self, source: str, name: Sequence[str], reason: str):
        self.source, self.name, self.reason = source, name, reason
        super().__init__(f"{source}: table {'.'.join(map(repr, name))} is stopped: {reason}")


class RunFailed(CdcError):
    """A run that a command launched failed. Fields: `source`, `reason`: the first cause, in one line."""

    def __init__(self, source: str, reason: str):
        self.source, self.reason = source, reason
        super().__init__(f"source {source}: {reason}")


class LakeChanged(CdcError):
    """A table or checkpoint of the lake isn't as the platform left it. Fields: `path`, `problem`."""

    def __init__(self, path: str, problem: str):
        self.path, self.problem = path, problem
        super().__init__(f"{path}: {problem}")


class StorageError(CdcError):
    """The lake's store fails or refuses. Fields: `uri` (of the file), `problem` (without secrets), `retriable`."""

    def __init__(self, uri: str, problem: str, *, retriable: bool):
        self.uri, self.problem, self.retriable = uri, problem, retriable
        super().__init__(f"{uri}: {problem}")


class RunInProgress(CdcError):
    """Another process is already writing this source's tables. Field: `source`."""

    retriable = True

    def __init__(self, source: str, waited_s: float):
        self.source = source
        super().__init__(f"source {source}: another run is writing its tables (waited {waited_s:.0f} s)")


class LeaseLost(CdcError):
    """Another process has taken the source over, and this one may commit no more. Fields: `source`, `token` (of this
    process), `newer`."""

    retriable = True

    def __init__(self, source: str, token: str, newer: str):
        self.source, self.token, self.newer = source, token, newer
        super().__init__(
            f"source {source}: this process was stopped, or the lake out of its reach, for longer than its lease "
            f"({int(token)}), and another one has taken the source over ({newer}). It commits no more"
        )


class NotReadable(CdcError):
    """A table, version, cut or column that was asked for can't be read. Fields: `name`, `problem`, `valid` (what would
    have worked)."""

    exit_code = 2

    def __init__(self, name: str, problem: str, valid: Iterable[str] = ()):
        self.name, self.problem, self.valid = name, problem, tuple(valid)
        hint = f"; valid: {', '.join(self.valid)}" if self.valid else ""
        super().__init__(f"{name}: {problem}{hint}")


class AlertNotSent(CdcError):
    """A channel didn't take a message. Fields: `channel`, `problem` (without secrets)."""

    retriable = True

    def __init__(self, channel: str, problem: str):
        self.channel, self.problem = channel, problem
        super().__init__(f"alerts channel {channel}: {problem}")
