"""The database behind a catalog: opened by its URL, tables made when they are not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from squill.arguments import URLS_HINT
from squill.catalog.tables import METADATA, VERSION, catalog_version
from squill.errors import ClusterError, PlanError
from squill.plan.paths import path_text
from squill.wording import shortened

__all__ = ["Database"]

WAIT_SECONDS = 30
"""How long a writer of SQLite waits for another one."""
OF_FILES = (
    "may you write to the file and its folder, and is it a catalog? Another place is warehouse= or catalog=; "
    "a damaged file is made anew once it is moved away."
)
OF_SERVERS = "is the server up, and may you use the database?"


class Database:
    """Connections to one database; its errors come out as `ClusterError`s that name it, without the password."""

    def __init__(self, url: str) -> None:
        self._url = _parsed(url)
        self.shown = self._url.render_as_string(hide_password=True)
        self._engine = self._made()
        try:
            with self._guarded():
                self._make_tables()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def exists(url: str) -> bool:
        """Whether there is such a database, as far as it can be told without opening it."""
        parsed = _parsed(url)
        return parsed.get_backend_name() != "sqlite" or (bool(parsed.database) and Path(str(parsed.database)).exists())

    def _made(self) -> Engine:
        options: dict[str, Any] = {}
        if self._url.get_backend_name() == "sqlite":
            options["connect_args"] = {"timeout": WAIT_SECONDS}
            if self._url.database:
                try:
                    Path(self._url.database).parent.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise ClusterError(
                        f"catalog: the folder of {self._url.database!r} cannot be made: {error.strerror}",
                        "give a warehouse= folder that you may write to, or a catalog= URL.",
                    ) from error
        try:
            # Connections are checked before use: a server may have been restarted meanwhile.
            engine = create_engine(self._url, pool_pre_ping=True, **options)
        except (NoSuchModuleError, ModuleNotFoundError) as error:
            raise ClusterError(
                f"catalog: there is no driver for {self.shown}: {error}",
                "for PostgreSQL install psycopg, pip install 'psycopg[binary]', and write postgresql://….",
            ) from error
        if self._url.get_backend_name() == "sqlite":
            event.listen(engine, "connect", _with_foreign_keys)
        return engine

    def _make_tables(self) -> None:
        # Other clients may be making them at the same moment: each time one is met, one more is there.
        for _ in range(len(METADATA.tables)):
            try:
                return self._make_missing_tables()
            except SQLAlchemyError:
                continue
        return self._make_missing_tables()

    def _make_missing_tables(self) -> None:
        # Before anything is made: a catalog of another version stays as it was.
        if inspect(self._engine).has_table(catalog_version.name):
            self._check_version()
        METADATA.create_all(self._engine, checkfirst=True)
        with self._engine.begin() as connection:
            if connection.scalars(select(catalog_version.c.version)).first() is None:
                connection.execute(insert(catalog_version).values(version=VERSION))
        self._check_version()

    def _check_version(self) -> None:
        with self._engine.begin() as connection:
            found = connection.scalars(select(catalog_version.c.version)).first()
        if found not in (None, VERSION):
            raise ClusterError(
                f"catalog: {self.shown} has version {found}, and this version of Squill reads version {VERSION}",
                "use another catalog=, or the version of Squill that made this one.",
            )

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Give a connection whose changes are kept together, or not at all."""
        with self._guarded(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise  # two clients at once: the caller knows what it means
        except SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            is_file = self._url.get_backend_name() == "sqlite"
            raise ClusterError(
                f"catalog: {self.shown} does not answer: {reason}", OF_FILES if is_file else OF_SERVERS
            ) from error

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise PlanError(
            f"catalog: {shortened(url)} is no URL of a database",
            URLS_HINT,
        ) from error
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        path_text(parsed.database, "catalog", URLS_HINT)
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername == "postgresql" else parsed


def _with_foreign_keys(connection: Any, _: object) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
