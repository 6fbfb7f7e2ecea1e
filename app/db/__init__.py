"""Units of work on the relay's database: `await db.write(work)`, `await db.read(work)`."""

from app.db.database import Database, Tx, open_database

__all__ = ["Database", "Tx", "open_database"]
