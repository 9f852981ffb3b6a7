"""The program: ``ringplan`` and ``python -m ringplan``."""

import gc
import os
import sys


def main() -> None:
    """Run the command line."""
    gc.disable()  # what is imported stays; looking for garbage in it is a seventh of the start
    try:
        from ringplan.cli.app import app  # noqa: PLC0415 - Ctrl-C while importing is Ctrl-C too

        app(prog_name="ringplan")
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # --help and --version print before there is a command
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write(f"error: cannot write the result: {error.strerror}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
