"""The `talaria` command: a client of the running relay, and the way to start one.

Modules of other rooms are imported where they are used: `talaria pair` must not wait for a server it does not start.
"""

from __future__ import annotations

import contextlib
import io
import sys


def main() -> None:
    """Exit status: 0 done, 1 failed, 2 used or configured wrongly."""
    from app.cli.commands import app
    from app.cli.show import complain
    from app.errors import Misconfigured, RelayError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character gets another one, not a crash
    try:
        app(prog_name="talaria")
    except Misconfigured as exc:
        complain(exc.message)
        sys.exit(2)
    except RelayError as exc:
        complain(exc.message)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `talaria devices | head`
        with contextlib.suppress(OSError):
            sys.stdout.close()
        sys.exit(1)
