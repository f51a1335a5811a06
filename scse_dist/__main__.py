"""Entry of every process: runs a verb and turns what happened into an exit code."""

import sys
import traceback

from scse_dist.errors import ExitCode, LostRank, UserError


def main() -> None:
    """Runs ``scse-dist`` with the process's arguments; exits with an ``ExitCode``."""
    from scse_dist.cli.app import run

    debug = "--debug" in sys.argv
    # DeepSpeed's launcher repeats LOCAL_RANK as an argument, in front of the verb.
    own = ("--debug", "--local_rank=")
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith(own)]
    try:
        run(arguments)
    except (UserError, LostRank) as error:
        if debug:
            traceback.print_exc()
        print(f"scse-dist: {error}", file=sys.stderr)
        sys.exit(ExitCode.USER_ERROR if isinstance(error, UserError) else ExitCode.LOST_RANK)


if __name__ == "__main__":
    main()
