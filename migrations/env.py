"""Alembic's entry. The relay runs migrations at start and hands its connection over."""

from __future__ import annotations

from alembic import context

from app.db.schema import metadata

connection = context.config.attributes["connection"]
# SQLite's DDL is transactional once the transaction is begun by hand; a migration cut short leaves nothing.
connection.exec_driver_sql("BEGIN IMMEDIATE")
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True, transactional_ddl=False)
try:
    context.run_migrations()
except BaseException:
    connection.rollback()
    raise
connection.connection.driver_connection.commit()
connection.commit()
