"""The `kvledger` command: its subcommands, and how every error of theirs ends; changes when a command is added."""

import functools
import io
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from eventstore.cli import (
    audit,
    demo,
    diff,
    drive,
    export,
    history,
    import_,
    migrate,
    rebuild,
    replay,
    residency,
    stats,
    status,
    verify,
)
from eventstore.domain.errors import LedgerError

FINE, FINDINGS, BAD_USE, INTERRUPTED = 0, 1, 2, 130

#: The base of typer's errors of use. It is click's class or a copy of it inside typer, by typer's version, so it is
#: reached from the one that typer has always exported.
_UseError: Any = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="kvledger",
    help="The durable ledger of vLLM's KV-cache offloading.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _until_nobody_reads(command: Callable[..., None]) -> Callable[..., None]:
    """`command`, ending quietly where the reader of its output has seen enough."""

    @functools.wraps(command)
    def quiet(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
            sys.stdout.flush()
        except BrokenPipeError:
            _write_no_more()

    return quiet


def _write_no_more() -> None:
    # Python writes what is left once more at exit, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_COMMANDS = (
    demo,
    migrate,
    drive,
    status,
    residency,
    history,
    diff,
    stats,
    audit,
    verify,
    rebuild,
    replay,
    import_,
    export,
)
for module in _COMMANDS:
    app.command(module.NAME)(_until_nobody_reads(module.command))


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed  # noqa: PLC0415 - only this option needs it

        typer.echo(f"kvledger {installed('kvledger')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(BAD_USE)


def main() -> None:
    """Run the command line; a user's mistake and a broken store end in one line on stderr, never in a traceback."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - to the end of the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal's encoding lacks is shown escaped; it must not end the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:  # told already
        _write_no_more()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code."""
    try:
        code = app(args=arguments, prog_name="kvledger", standalone_mode=False)
        return code if isinstance(code, int) else FINE
    except _UseError as error:
        where = f" (see `{error.ctx.command_path} --help`)" if error.ctx is not None else ""
        return _complain(error.format_message() + where)
    except LedgerError as error:
        return _complain(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        return _complain(f"{error.filename or 'the output'}: {error.strerror or error}")


def _complain(message: str) -> int:
    line = " ".join(message.split())
    print(f"kvledger: {line}", file=sys.stderr)  # noqa: T201 - stderr is where errors go
    return BAD_USE


if __name__ == "__main__":
    main()
