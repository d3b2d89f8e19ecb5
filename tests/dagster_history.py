"""Dagster's history in SQLite, for tests: the same tables and statements, without what is done anew for each event.

Dagster makes an engine for each event that it stores, which compiles each statement again, and reads some ninety files
of migrations for each file of its history. Here an engine is kept for each file, and the migrations are read once. What
is committed is not awaited until it is on the disk: no test takes the power away. Processes that tests start do as
always.
"""

from functools import cache, lru_cache
from typing import Any


def quicken() -> None:
    """For the rest of this process. Imports Dagster."""
    from alembic.script import ScriptDirectory
    from dagster._core.storage.event_log.sqlite import sqlite_event_log
    from dagster._core.storage.runs.sqlite import sqlite_run_storage
    from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
    from sqlalchemy import create_engine, event

    @lru_cache(maxsize=50)
    def kept(url: str, **options: Any) -> Any:
        engine = create_engine(url, **options)
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        return engine

    def of(url: str, connect_args: dict[str, Any] | None = None, **options: Any) -> Any:
        return kept(url, **options, connect_args=_Hashable(connect_args or {}))

    for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        module.create_engine = of  # type: ignore[attr-defined]
    ScriptDirectory.from_config = staticmethod(cache(ScriptDirectory.from_config))  # type: ignore[method-assign]


class _Hashable(dict[str, Any]):
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))
