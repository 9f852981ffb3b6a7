"""The command line: which commands there are, and how errors leave it."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ringplan.errors import RingplanError, SpecError, nearest, quote

EXIT_DOES_NOT_WORK: Final = 1
EXIT_NOT_A_SCENARIO: Final = 2
EXIT_BUG: Final = 70
EXIT_CLOSED_PIPE: Final = 141

#: Command -> the first line of its help. Its module is imported when it runs.
COMMANDS: Final = {
    "estimate": "Estimate one scenario: does it fit, is the ring hidden, what to change.",
    "memory": "Show the memory bill alone: what a rank holds, what grows, what else fits.",
    "validate": "Run small rings on this machine and compare them with what estimate predicts.",
    "list": "List the models, hardware, schedules, engines or checks that ringplan knows.",
    "show": "Show a model, hardware, a schedule, an engine, a check or a formula, with sources.",
    "schema": "Print the JSON Schema of a scenario file, or of what is printed as JSON.",
}


class OnceCommand(TyperCommand):
    """Refuses an option that is given twice, unless it is one that may be repeated."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Look at the options as typed, then parse them."""
        repeatable = {name for p in self.params if getattr(p, "multiple", False) for name in p.opts}
        seen: dict[str, str] = {}
        for word, following in zip(args, [*args[1:], ""], strict=False):
            option, equals, value = word.partition("=")
            if not word.startswith("--") or option in repeatable:
                continue
            given = f"{option} {value if equals else following}"
            if option in seen:
                raise SpecError(f"{seen[option]} and {given}: given twice", hint="keep one")
            seen[option] = given
        return super().parse_args(ctx, args)


class LazyGroup(TyperGroup):
    """Imports a command when it runs, and turns errors into one message and an exit code."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the commands in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand:  # noqa: ARG002
        """Import one command; say which one an unknown name probably meant."""
        if cmd_name not in COMMANDS:
            hint = nearest(cmd_name, list(COMMANDS), noun="commands")
            raise SpecError(f"there is no command {quote(cmd_name)}", hint=hint)
        module = import_module(f"ringplan.cli.{cmd_name}_command")
        gc.freeze()
        gc.enable()
        one = typer.Typer(add_completion=False, rich_markup_mode=None)
        one.command(cmd_name, cls=OnceCommand, help=module.run.__doc__)(module.run)
        return get_command(one)  # type: ignore[return-value]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: Any) -> Any:
        """Run a command; say what is wrong in a message of ours, or keep the traceback of a bug."""
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except RingplanError as error:
            complain(error)
            raise typer.Exit(EXIT_NOT_A_SCENARIO) from error
        except BrokenPipeError as error:
            _drop_output()
            raise typer.Exit(EXIT_CLOSED_PIPE) from error
        except OSError as error:
            _drop_output()
            reason = (error.strerror or str(error)).lower()
            complain(RingplanError(f"cannot write the result: {reason}", hint="free some space"))
            raise typer.Exit(EXIT_NOT_A_SCENARIO) from error
        except Exception as error:
            if type(error).__module__.startswith("typer"):
                raise
            traceback.print_exc()
            typer.echo("this is a bug of ringplan; please report it with the lines above", err=True)
            raise typer.Exit(EXIT_BUG) from error
        return result


def _drop_output() -> None:
    """Send what is still buffered nowhere, so that Python's own last flush is silent."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(error: RingplanError) -> None:
    """Print an error and its cure to stderr."""
    first, *more = error.message.split("\n")
    typer.echo(f"error: {first}", err=True)
    for line in more:
        typer.echo(f"       {line}", err=True)
    if error.hint:
        typer.echo(f"hint: {error.hint}", err=True)


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:  # noqa: FBT001 - Typer's callback
    if wanted:
        from ringplan import __version__  # noqa: PLC0415

        typer.echo(f"ringplan {__version__}")
        raise typer.Exit


@app.callback()
def ringplan(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """
    Plan ring attention and context parallelism before renting the machines.

    \b
      ringplan estimate --model llama-3.1-70b --hardware h100-sxm-80gb \\
                        --seq-len 1M --cp 16 --tp 8
      ringplan list models
    """  # noqa: D301 - \b keeps click from wrapping the example
