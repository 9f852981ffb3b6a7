"""
A Typer app with as many commands as ringplan, each of which does nothing.

`startup.py` times its ``--help`` against ``ringplan --help``, and checks the number of commands.
"""

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, help="Do nothing, in several ways.")


@app.command()
def estimate() -> None:
    """Do nothing about one scenario."""


@app.command()
def memory() -> None:
    """Show the memory of nothing."""


@app.command()
def validate() -> None:
    """Run nothing on this machine and compare it with what nothing predicts."""


@app.command("list")
def list_() -> None:
    """List nothing."""


@app.command()
def show() -> None:
    """Show nothing, with its sources."""


@app.command()
def schema() -> None:
    """Print the schema of nothing."""


def main() -> None:
    """Run the command line."""
    app(prog_name="floor")


if __name__ == "__main__":
    main()
