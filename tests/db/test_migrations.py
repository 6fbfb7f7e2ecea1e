from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, NullPool, create_engine, event, insert, inspect, select, text

from app.db import open_database
from app.db.database import _prepare
from app.db.migrate import alembic_config, migrate
from app.db.schema import metadata
from app.errors import Misconfigured

REVISIONS = [
    script.revision for script in reversed(list(ScriptDirectory.from_config(alembic_config()).walk_revisions()))
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/m.db", poolclass=NullPool)
    event.listen(engine, "connect", _prepare)
    yield engine
    engine.dispose()


def run(engine: Engine, revision: str, move: Any) -> None:
    with engine.connect() as connection:
        config = alembic_config()
        config.attributes["connection"] = connection
        move(config, revision)


def fill(engine: Engine) -> None:
    """A row in every table, with the keys that point at each other."""
    number = itertools.count(1)
    with engine.connect() as connection:
        for table in metadata.sorted_tables:
            made: dict[str, Any] = {"INTEGER": lambda: next(number), "FLOAT": lambda: 1.5, "BLOB": lambda: b"x"}
            row = {c.name: made.get(str(c.type), lambda: "x")() for c in table.columns}
            connection.execute(insert(table).values(row))
        connection.commit()


def tables(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names()) - {"alembic_version"}


def rows(engine: Engine, table: str) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text(f'SELECT count(*) FROM "{table}"')).scalar_one())


def test_the_migrations_make_exactly_the_schema(engine: Engine) -> None:
    migrate(engine)
    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    assert differences == []


def test_every_step_down_and_up_again_keeps_the_data_it_can(engine: Engine) -> None:
    migrate(engine)
    fill(engine)
    for revision in reversed(REVISIONS[:-1]):
        run(engine, revision, command.downgrade)
        assert all(rows(engine, table) for table in tables(engine))
        kept = tables(engine)
        run(engine, "head", command.upgrade)
        assert all(rows(engine, table) for table in kept)
        run(engine, revision, command.downgrade)
    run(engine, "base", command.downgrade)
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    migrate(engine)
    fill(engine)
    with engine.connect() as connection:
        assert all(connection.execute(select(table)).first() is not None for table in metadata.sorted_tables)


async def test_a_newer_database_is_refused_and_left_alone(engine: Engine, tmp_path: Path) -> None:
    migrate(engine)
    with engine.connect() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.commit()
    with pytest.raises(Misconfigured, match="newer Talaria"):
        async with open_database(f"sqlite:///{tmp_path}/m.db"):
            pass
    with engine.connect() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"


def test_a_migration_that_is_cut_short_leaves_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("alembic.op.create_index", broken)
    monkeypatch.setattr("alembic.operations.base.BatchOperations.create_index", broken)
    with pytest.raises(KeyboardInterrupt):
        migrate(engine)
    assert inspect(engine).get_table_names() == []
    monkeypatch.undo()
    migrate(engine)
