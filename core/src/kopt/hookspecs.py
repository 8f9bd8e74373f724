"""Every hook of kopt, in the order in which a run calls them: the contract of plugins.

A plugin is a plain class, found through an entry point of group ``kopt.<role>``. It may have a
nested ``Options``; it is made as ``Plugin(options)``. Its hooks carry ``@kopt.hookimpl`` and take
only the arguments that they use. Hooks marked *first result* stop at the first answer that is not
None; all others are asked in the user's order. Unless said otherwise hooks run in the session
process, where no torch is imported and no candidate code runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kopt.plugins.markers import hookspec

if TYPE_CHECKING:
    from kopt.evaluator import Evaluator
    from kopt.model.budget import Budget, Spend
    from kopt.model.candidate import Candidate, Knob
    from kopt.model.check import Check
    from kopt.model.completion import (
        Completion,
        CompletionRequest,
        ExpectedCalls,
        LanguageModel,
        Price,
    )
    from kopt.model.device import Device, Target
    from kopt.model.diagnosis import Diagnosis, Profile
    from kopt.model.evaluation import Evaluation
    from kopt.model.executable import BuildContext, Executable
    from kopt.model.history import History
    from kopt.model.oracle import OracleReport
    from kopt.model.probe import Probe
    from kopt.model.problem import Problem, Signature
    from kopt.model.reference import InputSet, Reference, Room
    from kopt.model.run import Run
    from kopt.model.trial import Trial
    from kopt.model.values import CallClaim
    from kopt.model.verification import StageResult, Verification


@hookspec
def kopt_check() -> Iterable[Check]:
    """Say whether this plugin can work on this machine.

    Called by ``kopt doctor``, ``kopt plugins --check`` and before a run for the plugins it uses.
    A ``fail`` stops a run; every row that is not ``ok`` carries its fix. Must not raise, and must
    answer within seconds: probe heavy libraries in a subprocess.
    """


@hookspec(firstresult=True)
def kopt_load_problem(path: Path) -> Problem | None:
    """Read a problem (role ``format``; first result).

    :param path: an existing file or folder.
    Return None where the file is of another format. Raise ProblemError where it is of this format
    and wrong. The reference must not be executed here.
    """


@hookspec(firstresult=True)
def kopt_submit(problem: Problem, device: str) -> Evaluator | None:
    """Offer an evaluator for a run (role ``executor``; first result), as on another machine.

    :param device: ``cpu`` or ``cuda``.
    Return None to leave the run to the next executor; with none, judge and candidates are local
    processes.
    """


@hookspec(firstresult=True)
def kopt_open_reference(problem: Problem, device: str, room: Room) -> Reference | None:
    """Make a problem runnable (role ``backend``; first result). Called in the judge process.

    :param device: ``cpu`` or ``cuda``.
    :param room: reserves memory, so that problems beside each other find enough.
    Return None where the reference is of a framework that this backend does not know. Raise
    ProblemError where the reference or its inputs fail.
    """


@hookspec
def kopt_baselines(problem: Problem, device: str) -> Iterable[Candidate]:
    """Name what a candidate has to beat (role ``backend``).

    Each is a Candidate whose ``idea`` is the baseline's name, as ``eager`` or ``torch.compile``.
    A baseline that fails to build or is not correct is reported and left out.
    """


@hookspec(firstresult=True)
def kopt_test_oracle(reference: Reference) -> OracleReport | None:
    """Say which known-wrong results this verifier would reject (role ``verifier``; first result).

    Called in the judge process, by ``kopt verify PROBLEM`` without a kernel. None: no opinion.
    """


@hookspec(firstresult=True)
def kopt_measure_device(device: str) -> Device | None:
    """Measure a device's rates (role ``backend``; first result): some seconds, once a device.

    :param device: ``cpu`` or ``cuda``.
    Returns the device with its ``peaks``. Called in a process of its own. None: not this backend's.
    """


@hookspec(firstresult=True)
def kopt_read_profile(path: Path) -> Profile | None:
    """Read a report that a profiler's tool wrote, on any machine (role ``profiler``; first result).

    :param path: an existing file.
    Return None where it is not this tool's. Raise PluginError where it is, and cannot be read.
    """


@hookspec
def kopt_profile(
    problem: Problem, evaluation: Evaluation, device: Device, probe: Probe
) -> Profile | None:
    """Measure how a correct candidate uses the device (role ``profiler``). None: nothing to say.

    What a tool cannot measure here belongs into the profile's ``notes``, with what to do about it:
    other profilers go on.
    """


@hookspec
def kopt_judge(
    problem: Problem,
    signature: Signature,
    evaluation: Evaluation,
    profiles: Sequence[Profile],
    device: Device,
    history: History,
    diagnoses: Sequence[Diagnosis],
    llm: LanguageModel | None,
) -> Diagnosis | None:
    """Say what limits a parent (role ``judge``). None: no opinion.

    :param diagnoses: of the judges that were asked before this one, in the user's order.
    :param llm: the run's language model; None where it has none.
    """


@hookspec
def kopt_propose(
    problem: Problem,
    signature: Signature,
    target: Target,
    parent: Evaluation | None,
    diagnoses: Sequence[Diagnosis],
    history: History,
    llm: LanguageModel | None,
) -> Iterable[Candidate]:
    """Propose candidates (role ``strategy``).

    Called in the first round with ``parent`` None, and again so while nothing is correct; then once
    per selected parent and round.
    Must be a function of its arguments alone: a resumed run calls it again with the same history.
    ``llm`` (None where the run has no language model) answers what it was asked before alike.
    Candidates already evaluated are dropped by the session. An empty answer is fine.
    ``target.language`` is the parent's where the run builds that, or its main one; ``target.beside``
    names further ones that the run builds.
    """


@hookspec(firstresult=True)
def kopt_tunables(candidate: Candidate) -> Mapping[str, Knob] | None:
    """Find tunables that a source has and does not declare (role ``backend``; first result).

    Called for each proposed candidate without knobs. Each knob returned has ``edits``: where in
    the source its values are written; at the default the source is as it stands. Read the text
    only: this is the session process, and a resumed run must find the same.
    Return None where the language is another backend's; an empty mapping where there are none.
    """


@hookspec
def kopt_warm_up(purpose: str) -> None:
    """Import what will be needed (roles ``backend`` and ``verifier``).

    Called in a candidate process as it starts, while the judge is busy with something else, and in
    the judge before it takes hold of the device. What a verifier imports later, once a candidate ran,
    may have been overwritten by it.

    :param purpose: ``baselines``, the language of the candidates, as ``triton``, or ``reference``.
    Touch neither the device nor the problem, and start no thread: on Linux candidate processes are
    forked from one that this was called in, and neither would outlive that.
    """


@hookspec(firstresult=True)
def kopt_build(problem: Problem, candidate: Candidate, context: BuildContext) -> Executable | None:
    """Build a candidate (role ``backend``; first result). Called in a candidate process.

    Return None where the language is another backend's. Raise CandidateError with the status and
    the compiler's own words where the source is at fault.
    """


@hookspec
def kopt_verify(trial: Trial) -> Verification | None:
    """Judge correctness (role ``verifier``). Called in the judge process; every verdict must pass.

    Let CandidateError pass through: the session turns it into the candidate's status.
    """


@hookspec
def kopt_recheck(trial: Trial, inputs: InputSet, claim: CallClaim) -> StageResult | None:
    """Judge what a timed call left in ``inputs.results`` (role ``verifier``; judge process).

    Called after a candidate was timed, on inputs whose content was new to that block; ``claim`` is
    what its process says of the results. Arguments changed in place hold what the call made of
    them. None: no opinion.
    """


@hookspec(firstresult=True)
def kopt_select(history: History, round_number: int) -> Sequence[Evaluation] | None:
    """Choose the parents of the next round (role ``search``; first result).

    Must be a function of its arguments alone. An empty sequence ends the run.
    """


@hookspec(firstresult=True)
def kopt_stop(history: History, budget: Budget, spend: Spend) -> str | None:
    """Say why the run should end now (role ``search``; first result). None: go on."""


@hookspec
def kopt_expect(
    problem: Problem, signature: Signature, target: Target, budget: Budget, others: int
) -> Iterable[ExpectedCalls]:
    """Say what a plugin would ask of a language model in a run (role ``strategy``, or ``judge``).

    Called by ``kopt estimate``, before anything is asked. ``others`` candidates for the first round
    come from strategies that need no language model; unless it is 0 nobody else is asked for any.
    """


@hookspec(firstresult=True)
def kopt_price(role: str) -> Price | None:
    """Say what the model costs that answers requests of a role (role ``llm``; first result).

    None: unknown. Then a run with a limit on money is refused before it begins.
    """


@hookspec(firstresult=True)
def kopt_complete(request: CompletionRequest) -> Completion | None:
    """Answer a prompt (role ``llm``; first result). None: not this provider's model.

    Called from several threads at a time. Retry, with bounds, what may succeed the next time. Raise
    CompletionError where there is no answer, with what trying cost; kind ``pending`` where a person
    has still to write it: the run is then paused.
    """


@hookspec
def kopt_give_up(request: CompletionRequest) -> None:
    """End a request that nobody waits for any more (role ``llm``).

    The ``kopt_complete`` that answers it raises CompletionError with kind ``stopped`` and what it
    had cost by then, or answers after all. Do nothing for one that is not being answered.
    """


@hookspec
def kopt_run_started(run: Run) -> None:
    """Observe: baselines are measured, the first round begins."""


@hookspec
def kopt_candidate_evaluated(evaluation: Evaluation) -> None:
    """Observe: an evaluation is in the journal."""


@hookspec
def kopt_run_finished(run: Run) -> None:
    """Observe: the run has ended, and how."""
