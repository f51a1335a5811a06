"""Entry of every process: runs a verb and turns what happened into an exit code."""

import os
import re
import sys
import traceback

from scse_dist.errors import ExitCode, LostRank, UserError

_IS_FROM_DEEPSPEED = re.compile(r"--local_rank=\d+")
"""DeepSpeed's launcher repeats LOCAL_RANK as an argument, in front of the verb."""


def main() -> None:
    """Runs ``scse-dist`` with the process's arguments; exits with an ``ExitCode``."""
    from scse_dist.cli.app import run

    arguments = [argument for argument in sys.argv[1:] if not _IS_FROM_DEEPSPEED.fullmatch(argument)]
    debug = "--debug" in arguments
    if debug:
        arguments.remove("--debug")
        os.environ["SCSE_DIST_DEBUG"] = "1"  # for the ranks, if this process becomes their launcher
    debug = debug or "SCSE_DIST_DEBUG" in os.environ
    try:
        run(arguments)
    except (UserError, LostRank) as error:
        if debug:
            traceback.print_exc()
        print(f"scse-dist: {error}", file=sys.stderr)
        sys.exit(ExitCode.USER_ERROR if isinstance(error, UserError) else ExitCode.LOST_RANK)


if __name__ == "__main__":
    main()
