"""Brings a database to the schema of this program, and refuses one that is ahead of it."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from app.errors import Misconfigured


def migrations_dir() -> Path:
    """In a wheel they lie inside the package, in a checkout beside it."""
    packed = Path(__file__).parent.parent / "_migrations"
    return packed if packed.is_dir() else Path(__file__).parents[2] / "migrations"


def alembic_config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    return config


def migrate(engine: Engine, revision: str = "head") -> None:
    """Run what is missing, each migration in a transaction. Raises Misconfigured if the database is newer."""
    config = alembic_config()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    with engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
        if current is not None and current not in known:
            raise Misconfigured(
                f"the database was written by a newer Talaria (schema {current}); "
                "install that version again, or restore a backup made before the upgrade"
            )
        connection.rollback()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
