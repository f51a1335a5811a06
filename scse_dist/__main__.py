"""Entry of every process: runs a verb and turns what happened into an exit code."""

import sys
import traceback

from scse_dist.errors import ExitCode, LostRank, UserError


def main() -> None:
    """Runs ``scse-dist`` with the process's arguments; exits with an ``ExitCode``."""
    from scse_dist.cli.app import run

    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        code = run(arguments)
    except UserError as error:
        if debug:
            traceback.print_exc()
        print(f"scse-dist: {error}", file=sys.stderr)
        code = ExitCode.USER_ERROR
    except LostRank as error:
        if debug:
            traceback.print_exc()
        print(f"scse-dist: {error}", file=sys.stderr)
        code = ExitCode.LOST_RANK
    except KeyboardInterrupt:
        print("scse-dist: interrupted", file=sys.stderr)
        code = ExitCode.RESUME
    sys.exit(int(code))


if __name__ == "__main__":
    main()
