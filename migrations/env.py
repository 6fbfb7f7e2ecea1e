"""Alembic's entry. The relay runs migrations at start and hands its connection over."""

from __future__ import annotations

from alembic import context

from app.db.schema import metadata

connection = context.config.attributes["connection"]
driver = connection.connection.driver_connection
# A table that is rebuilt is dropped and renamed, which its children must not notice. Of no effect in a transaction.
driver.execute("PRAGMA foreign_keys=OFF")
# SQLite's DDL is transactional once the transaction is begun by hand; a migration cut short leaves nothing.
driver.execute("BEGIN IMMEDIATE")
try:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True, transactional_ddl=False)
    context.run_migrations()
    broken = driver.execute("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise RuntimeError(f"a migration left rows without their parents: {broken[:5]}")
    driver.commit()
except BaseException:
    driver.rollback()
    raise
finally:
    connection.rollback()
    driver.execute("PRAGMA foreign_keys=ON")
