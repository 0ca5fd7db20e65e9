"""Runs the migrations, inside the caller's transaction where kvledger calls, or for the alembic command."""

from alembic import context
from sqlalchemy import Connection

from eventstore.storage.engine import open_engine
from eventstore.storage.schema import metadata


def run(connection: Connection) -> None:
    # No batch rebuild of tables and no transaction of alembic's own: one BEGIN IMMEDIATE holds all steps.
    context.configure(connection=connection, target_metadata=metadata, transactional_ddl=False)
    context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    url = context.get_x_argument(as_dictionary=True).get("store") or context.config.get_main_option("sqlalchemy.url")
    if not url:
        raise SystemExit("alembic: name the store, as in `alembic -x store=sqlite:///kvledger.db upgrade head`")
    engine = open_engine(url)
    with engine.begin() as own:
        run(own)
    engine.dispose()
