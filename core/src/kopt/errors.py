"""The errors that kopt raises, and the exit code of each.

KoptError
├── ConfigError              a setting is wrong; nothing was started
├── ProblemError             a problem cannot be loaded or run
├── KernelFileError          a kernel file's header or entry point is wrong
│   └── ExpressionError      an expression in a header is wrong
├── PluginError
│   ├── UnknownPluginError       no plugin of that name is installed
│   ├── PluginConflictError      two distributions provide that name
│   ├── PluginIncompatibleError  its requirements are not met
│   ├── PluginLoadError          importing it failed
│   ├── PluginInterfaceError     its hooks do not match the specifications
│   ├── PluginOptionsError       its options are wrong
│   └── PluginUnavailableError   it cannot work on this machine
├── DeviceError              no usable device
├── RunStoreError            a run folder is missing, damaged or from another machine
├── CompletionError          a language model did not answer; it carries why (never leaves a run)
├── RunPausedError           a run waits for somebody's answer; it can be resumed
├── CandidateError           a candidate failed; it carries the status (never leaves the worker)
└── WorkerError              a worker process failed through no fault of a candidate
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kopt.model.completion import CompletionFailure
    from kopt.model.verification import Status


class ExitCode(IntEnum):
    """What ``kopt`` exits with."""

    IMPROVED = 0
    """Improved, or the check passed."""
    NOT_IMPROVED = 1
    """Finished with nothing faster, or the check failed."""
    INTERRUPTED = 2
    """Interrupted; ``kopt resume`` goes on."""
    INTERNAL = 3
    """A fault of kopt itself."""
    USAGE = 4
    """Usage, configuration or plugin."""
    NO_DEVICE = 5
    """No usable device."""


class KoptError(Exception):
    """Root of every error that kopt raises on purpose."""

    exit_code = ExitCode.USAGE


class ConfigError(KoptError):
    """A setting is unknown or its value is wrong."""


class ProblemError(KoptError):
    """A problem cannot be loaded, or its reference cannot be run."""


class KernelFileError(KoptError):
    """A kernel file's header or entry point is wrong."""


class ExpressionError(KernelFileError):
    """An expression over names and shapes is wrong."""


class PluginError(KoptError):
    """A plugin cannot be used."""


class UnknownPluginError(PluginError):
    """No plugin of that name is installed."""


class PluginConflictError(PluginError):
    """Two distributions provide the same name."""


class PluginIncompatibleError(PluginError):
    """A plugin's requirements are not met."""


class PluginLoadError(PluginError):
    """Importing a plugin failed."""


class PluginInterfaceError(PluginError):
    """A plugin's hooks do not match the specifications."""


class PluginOptionsError(PluginError):
    """A plugin's options are wrong."""


class PluginUnavailableError(PluginError):
    """A plugin cannot work on this machine."""

    exit_code = ExitCode.NO_DEVICE


class DeviceError(KoptError):
    """No usable device."""

    exit_code = ExitCode.NO_DEVICE


class RunStoreError(KoptError):
    """A run folder is missing, damaged, in use, or from another machine."""


class CompletionError(KoptError):
    """A language model did not answer: how ``kopt_complete`` says so."""

    def __init__(self, failure: CompletionFailure) -> None:
        super().__init__(f"{failure.kind}: {failure.detail}")
        self.failure = failure


class RunPausedError(KoptError):
    """A run waits for an answer that somebody has still to write."""

    exit_code = ExitCode.INTERRUPTED


class CandidateError(KoptError):
    """A candidate failed; becomes its evaluation's status."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class WorkerError(KoptError):
    """A worker process failed through no fault of a candidate."""

    exit_code = ExitCode.INTERNAL


def lack_of_memory(said: str) -> str:
    """Return what an allocator said, without its list of every process on a GPU, and what helps."""
    first, *_ = re.split(r" (?:Process \d+ has|Including non-PyTorch memory)", said.strip())
    return f"{first.rstrip('.') or 'out of memory'}; use a smaller workload, or end what else runs there"
