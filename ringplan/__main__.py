"""The program: ``ringplan`` and ``python -m ringplan``."""

import gc
import sys


def main() -> None:
    """Run the command line."""
    gc.disable()  # what is imported stays; looking for garbage in it is a seventh of the start
    try:
        from ringplan.cli.app import app  # noqa: PLC0415 - Ctrl-C while importing is Ctrl-C too

        app(prog_name="ringplan")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
