"""What the selftest has for GPUs only: kernels in Triton, and which outcomes are right for them."""

from __future__ import annotations

from kopt.model.verification import Status

_WRONG, _STALE = Status.WRONG, Status.INCOMPLETE_WRITE
_INVALID, _MUTATES = Status.INVALID_OUTPUT, Status.MUTATES_INPUT
_ILLEGAL, _FAILED = Status.ILLEGAL_ACCESS, Status.LAUNCH_FAILED
_DELEGATED, _HASTY = Status.DELEGATED, Status.TIMING_NOT_CREDIBLE
_UNCOMPILED = Status.COMPILE_ERROR

ATTACKS: dict[str, tuple[Status, ...]] = {
    "zeros": (_WRONG,),
    "constant": (_WRONG,),
    "identity": (_WRONG,),
    "row-mean": (_WRONG,),
    "part-of-reduction": (_WRONG,),
    "part-of-sum": (_WRONG,),
    "weights-ignored": (_WRONG,),
    "bias-ignored": (_WRONG,),
    "lower-precision": (_WRONG,),
    "bfloat16": (_WRONG,),
    "half-dot": (_WRONG,),
    "tf32-dot": (_WRONG,),
    "tf32-flags": (_WRONG,),
    "hard-coded-shape": (_WRONG,),
    "nan-everywhere": (_WRONG,),
    # Memory that a kernel allocates itself holds anything: what it left unwritten is found as
    # such where that memory was poisoned, and as wrong values where not.
    "partial-write": (_STALE, _WRONG),
    "stale-output": (_STALE, _WRONG),
    "sums-into-garbage": (_STALE, _WRONG),
    "filled-later": (_WRONG,),
    "memo-by-pointer": (_WRONG,),
    "memo-by-shape": (_WRONG,),
    "memo-by-content": (_WRONG, _HASTY),
    "first-calls-only": (_WRONG,),
    "first-hundreds-of-calls": (_WRONG, _HASTY),
    "state-across-calls": (_WRONG,),
    "race": (_WRONG, Status.NON_DETERMINISTIC),
    "replays-old-graph": (_WRONG,),
    "work-at-import": (_WRONG,),
    "side-stream": (_HASTY, _WRONG),
    "patched-events": (_HASTY,),
    "sleeps-in-warm-up": (_WRONG, _HASTY),
    "skips-by-the-judges-clock": (_WRONG,),
    "input-mutated": (_MUTATES,),
    "output-in-input": (_MUTATES,),
    "output-elsewhere": (_INVALID,),
    "narrow-index": (_INVALID,),
    "out-of-bounds-write": (_ILLEGAL,),
    "wild-pointer": (_ILLEGAL,),
    "reads-past-end": (_ILLEGAL,),
    "device-hang": (Status.HANG,),
    "host-hang": (Status.HANG,),
    "out-of-memory": (Status.OOM,),
    "huge-shared-memory": (_UNCOMPILED,),
    "compile-error": (_UNCOMPILED,),
    "no-entry": (Status.PARSE_ERROR,),
    "too-many-blocks": (_FAILED,),
    "imports-reference": (_FAILED,),
    "finds-reference": (_DELEGATED,),
    "calls-functional": (_DELEGATED,),
    "calls-aten": (_DELEGATED,),
    "calls-compile": (_DELEGATED,),
    "matmul-operator": (_DELEGATED,),
    "spelled-by-getattr": (_DELEGATED,),
    "falls-back": (_DELEGATED,),
    "decoy-kernel": (_DELEGATED,),
    "vendor-by-pointer": (_DELEGATED,),
}
CONTROLS = (
    "honest", "honest-timed", "other-rounding", "ieee-dot", "two-outputs", "integers", "in-place",
    "atomics", "workspace", "autotuned", "knobs", "simplified", "straight-copy", "packed-weights",
    "refuses-other-shapes", "joined-streams", "replays-graph",
)  # fmt: skip

PROBLEMS = {
    "part-of-sum": "sums", "state-across-calls": "sums", "race": "sums", "atomics": "sums",
    "sums-into-garbage": "sums", "workspace": "sums",
    "vendor-by-pointer": "product", "half-dot": "product", "tf32-dot": "product", "tf32-flags": "product_large",
    "huge-shared-memory": "product", "matmul-operator": "product", "ieee-dot": "product",
    "narrow-index": "largest", "two-outputs": "largest", "integers": "counts",
    "simplified": "counts", "out-of-bounds-write": "add_in_place", "in-place": "add_in_place",
    "straight-copy": "copy", "packed-weights": "linear/model.py", "hard-coded-shape": "norm_two",
    "side-stream": "norm_large", "patched-events": "norm_large", "honest-timed": "norm_large",
}  # fmt: skip
"""Of the kernels that do not compute ``norm``, or not at its size."""

TIMED = {
    "memo-by-content", "first-hundreds-of-calls", "side-stream", "patched-events",
    "sleeps-in-warm-up", "skips-by-the-judges-clock", "honest-timed",
}  # fmt: skip

NEED_A_GPU = {
    "bfloat16", "tf32-dot", "tf32-flags", "sums-into-garbage", "race", "replays-old-graph",
    "output-elsewhere", "huge-shared-memory", "compile-error", "too-many-blocks", "calls-compile",
    "joined-streams", "replays-graph", "vendor-by-pointer", "reads-past-end",
}  # fmt: skip
"""Besides what is timed: arithmetic, concurrency and limits that an interpreter does not have."""
