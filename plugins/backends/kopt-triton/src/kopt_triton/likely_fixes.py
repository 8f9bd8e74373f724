"""What helps against what Triton, PyTorch and the driver say: patterns of messages, the first wins."""

from __future__ import annotations

import re

from kopt.model.verification import Status

_FIXES = (
    (r"arange's range must be a power of 2|Shape element \d+ must be a power of 2",
     "extents in a kernel are powers of two: use triton.next_power_of_2(n) and a mask"),
    (r"arange's end argument must be greater", "an extent is at least 1: check what is passed"),
    (r"arange's arguments must be of type tl.constexpr|Expected a constexpr|must be a? ?constexpr"
     r"|is not a constexpr|Shape element \d+ must have type",
     "declare the extent as a parameter `NAME: tl.constexpr`"),
    (r"numel \(\d+\) exceeds triton maximum", "use a smaller block and loop over the rest"),
    (r"`other` cannot be provided without `mask`", "give the load a mask, or drop other"),
    (r"argument cannot be block type if pointer argument is not a block",
     "add the block's offsets to the pointer, as ptr + tl.arange(0, BLOCK)"),
    (r"Expected (pointer|mask|value|other) argument to have shape",
     "pointer, value and mask need one shape: index both with [:, None] or [None, :]"),
    (r"Unsupported ptr type", "load from and store to a tensor's pointer plus offsets"),
    (r"[Cc]annot make_shape_compatible|[Ii]ncompatible dimensions|Cannot broadcast",
     "make the shapes agree with [:, None] or [None, :]"),
    (r"Input shapes should have|must be >= 16", "tl.dot needs extents of at least 16: pad the block"),
    (r"equal reduction dimensions|First input shape .* not equal",
     "tl.dot multiplies (M, K) by (K, N): transpose with tl.trans where that is meant"),
    (r"equal ranks >= 2", "tl.dot multiplies blocks of two dimensions: add one with [:, None]"),
    (r"accumulator shape is incompatible", "the accumulator of tl.dot has the shape (M, N)"),
    (r"Unsupported [lr]hs dtype", "tl.dot takes fp8, fp16, bf16, fp32, fp64 and int8: cast first"),
    (r"incompatible.*dot|same dtype|Both operands must be same",
     "cast both operands to one dtype with .to(...)"),
    (r"Expected dtype \[.*\] but got", "cast to one of these dtypes first, with .to(...)"),
    (r"invalid operands of type pointer", "offsets of a pointer are integers: cast with .to(tl.int32)"),
    (r"invalid operands of type", "cast the operands with .to(...) to what the operator takes"),
    (r"'str' object has no attribute", "name the dtype as tl.float16, not as text"),
    (r"'NoneType' object has no attribute",
     "an argument is None: test it with `if NAME is not None` in the kernel"),
    (r"Loop-carried variable|[Mm]ismatched type|initial value for .* is of type",
     "give the variable its final type and shape before the loop or branch"),
    (r"Boolean value of Tensor", "choose by element with tl.where, or branch on a scalar"),
    (r"unsupported tensor index", "a block is indexed by None and : only; load the part by pointer"),
    (r"has no len\(\)", "take the extent from the tl.constexpr that made it"),
    (r"cannot change total number of elements", "the product of the new extents must be the old one"),
    (r"0- or 1-dimensional tensor", "give it a second dimension with [:, None] first"),
    (r"Cannot have `return` statements inside", "return at the end, and skip work by a mask or an if"),
    (r"f-string", "print in a kernel with tl.device_print"),
    (r"^StopIteration", "define functions with @triton.jit at module level, not in a kernel"),
    (r"Unsupported function referenced",
     "a kernel calls tl functions and functions with @triton.jit only"),
    (r"error encountered during parsing",
     "the operands of an operation have types that it does not take; a mask is a comparison, not a "
     "number"),
    (r"is not defined", "define the name, or pass it as an argument; a global must be tl.constexpr"),
    (r"Cannot access global variable",
     "pass the global as a tl.constexpr argument, or define it as NAME = tl.constexpr(value)"),
    (r"unsupported AST node|is not supported|not implemented|UnsupportedLanguageConstruct",
     "Triton compiles a part of Python only: rewrite with tl operations and plain loops"),
    (r"triton\.language[\w.]*' has no attribute|got an unexpected keyword argument",
     "check the name against the installed triton's triton.language"),
    (r"_semantic|_builder", "call tl functions inside @triton.jit functions only"),
    (r"missing \d+ required positional arg|got multiple values for arg|too many positional arg",
     "give the launch every parameter of the kernel once, in its order or by name"),
    (r"^AssertionError$", "an argument has a dtype or a shape that the called function refuses"),
    (r"failed to specialize argument", "a kernel takes tensors, numbers, bools and None"),
)  # fmt: skip
_STATUSES = (
    (r"an illegal memory access", Status.ILLEGAL_ACCESS, "check the masks of loads and stores"),
    (r"misaligned address", Status.ILLEGAL_ACCESS,
     "an address is not a multiple of its access's size; check hints like tl.multiple_of"),
    (r"out of memory|DefaultCPUAllocator", Status.OOM, "allocate less in the launcher"),
    (r"device-side assert", Status.LAUNCH_FAILED, "an assertion in the kernel failed"),
    (r"invalid (configuration )?argument", Status.LAUNCH_FAILED,
     "a grid has 1 to 2^31-1, 65535, 65535 blocks and none may be 0"),
    (r"cannot be accessed from Triton", Status.LAUNCH_FAILED,
     "a CPU tensor went to the kernel: allocate with device=x.device"),
    (r"was specified but unrecognised", Status.COMPILE_ERROR,
     "the kernel has no such parameter: rename or drop the keyword"),
    (r"num_warps must be a power of 2", Status.COMPILE_ERROR, "use 1, 2, 4, 8, 16 or 32 warps"),
    (r"num_ctas > 1 requires", Status.COMPILE_ERROR, "set num_ctas=1 on this architecture"),
    (r"is not defined for option 'gpu-name'", Status.UNSUPPORTED,
     "this version of Triton does not know the architecture: pip install --upgrade triton"),
    (r"module 'triton\.language[\w.]*' has no attribute", Status.COMPILE_ERROR,
     "check the name against the installed triton's triton.language"),
    (r"ptxas:.*Not a name of any known instruction", Status.COMPILE_ERROR,
     "correct the inline assembly; its instructions are those of PTX for this architecture"),
    (r"PassManager::run failed|PTXAS error|ptxas", Status.COMPILE_ERROR,
     "the compiler itself failed: try other block sizes, num_warps or num_stages"),
    (r"no valid triton config|No valid autotuner config", Status.COMPILE_ERROR,
     "no configuration is left: add one that fits"),
    (r"Unsupported function referenced|error encountered during parsing", Status.COMPILE_ERROR, ""),
    (r"[Mm]eta tensor|'Meta' backend|tensors? on meta", Status.UNSUPPORTED,
     "the launcher reads values on the host: derive sizes from shapes to compile ahead of time"),
)  # fmt: skip


def fix_of(text: str) -> str:
    """Return what likely helps against a compiler's message; empty where that is not known."""
    return next((fix for pattern, fix in _FIXES if re.search(pattern, text)), "")


def status_of(text: str) -> tuple[Status, str] | None:
    """Return what a message of a launch means and what likely helps; None where not known."""
    for pattern, status, fix in _STATUSES:
        if re.search(pattern, text):
            return status, fix or fix_of(text)
    return None
