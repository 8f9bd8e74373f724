"""The ``kopt`` command: verbs, and how errors become exit codes."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from kopt._version import __version__
from kopt.cli import (
    analyze_verb,
    build_verb,
    config_verb,
    doctor_verb,
    estimate_verb,
    init_verb,
    measure_verb,
    optimize_verb,
    plugins_verb,
    profile_verb,
    resume_verb,
    selftest_verb,
    show_verb,
    suite_verb,
    verify_verb,
)
from kopt.cli.options import Group
from kopt.errors import ExitCode, KoptError

_CTRL_C = 130
"""What typer makes of a KeyboardInterrupt that a verb lets through."""

app = typer.Typer(
    name="kopt",
    cls=Group,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (
    optimize_verb, resume_verb, show_verb, verify_verb, measure_verb, profile_verb,
    analyze_verb, estimate_verb, build_verb, init_verb,
    plugins_verb, doctor_verb, selftest_verb, config_verb, suite_verb,
):  # fmt: skip
    verb.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kopt {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Log events in detail, tracebacks included.")
    ] = False,
) -> None:
    """Make a compute kernel faster and prove that it is still right.

    Begin with: kopt doctor, then: kopt optimize PROBLEM.

    Exit codes:
    0 improved, or the check passed
    1 finished, nothing faster, or the check failed
    2 interrupted, resumable
    3 internal error
    4 usage, configuration or plugin
    5 no usable device
    """
    from kopt.logs import configure

    configure("debug" if verbose else "warning")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every KoptError becomes one message and its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(args=given, prog_name="kopt", standalone_mode=False)
    except KoptError as error:
        _say(str(error))
        sys.exit(int(error.exit_code))
    except typer.Abort:
        _say("aborted")
        sys.exit(int(ExitCode.INTERRUPTED))
    except KeyboardInterrupt:
        _say("interrupted")
        sys.exit(int(ExitCode.INTERRUPTED))
    except Exception as error:  # noqa: BLE001 - the last resort: a message, and exit code 3
        sys.exit(_usage_or_internal(error, given))
    if code == _CTRL_C:
        _say("interrupted")
        code = int(ExitCode.INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _usage_or_internal(error: Exception, given: list[str]) -> int:
    format_message = getattr(error, "format_message", None)
    if format_message is not None:  # a usage error of the command line parser
        if format_message():  # empty where help was wanted and has been shown
            error.show()  # type: ignore[attr-defined]
        return int(ExitCode.USAGE)
    if "-v" in given or "--verbose" in given:
        traceback.print_exception(error)
        return int(ExitCode.INTERNAL)
    _say(f"internal error: {type(error).__name__}: {error} (kopt -v ... shows where)")
    return int(ExitCode.INTERNAL)


def _say(message: str) -> None:
    typer.echo(f"kopt: {message}", err=True)
