"""What can go wrong between a snapshot and what it is compared with. No message holds a DSN."""

from cdc_platform.errors import CdcError


class SourceUnreachable(CdcError):
    """The source database didn't answer or refused the login. Fields: `server` (host:port), `problem`."""

    retriable = True

    def __init__(self, server: str, problem: str):
        self.server, self.problem = server, problem
        super().__init__(f"source database {server}: {problem}")


class SourceRefused(CdcError):
    """The source database refused a statement. Fields: `server`, `problem` (its own words).

    Worth a retry: it also refuses a consistent read of a table that was altered meanwhile (1412)."""

    retriable = True

    def __init__(self, server: str, problem: str):
        self.server, self.problem = server, problem
        super().__init__(f"source database {server} refused a read: {problem}")


class ExportUnreadable(CdcError):
    """An export can't be read. Fields: `path`, `problem`."""

    def __init__(self, path: str, problem: str):
        self.path, self.problem = path, problem
        super().__init__(f"export {path}: {problem}")
