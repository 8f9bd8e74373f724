"""A reply's code includes the compiler's own headers, however it is written."""

from __future__ import annotations

import time
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.testing.strategy import a_parent
from kopt_rewrite.replies import Outcome, Wanted, read_reply
from kopt_rewrite.replies.includes import reads_files

KERNEL = a_parent().candidate.source
REFUSED = {
    "plain": '#include "/etc/passwd"',
    "in angles": "#include </etc/passwd>",
    "up": '#include "../../etc/passwd"',
    "up within": '#include "a/../../../etc/passwd"',
    "up in angles": "#include <a/../../x.h>",
    "home": '#include "~/.netrc"',
    "hidden": '#include ".env"',
    "a drive": '#include "C:/secret.txt"',
    "macro": '#define F "/etc/passwd"\n#include F',
    "macro in parts": "#define G(x) <x>\n#include G(/etc/passwd)",
    "nothing": "#include\n",
    "comment before the name": '#/**/include "/etc/passwd"',
    "comment over lines": '#/*\n*/include "/etc/passwd"',
    "comment before the path": '#include/**/"/etc/passwd"',
    "comment before the directive": '/* x */ #include "/etc/passwd"',
    "comment that ends on its line": '/* x\n */ /* y */ #include "/etc/passwd"',
    "in what looks like a comment": 'const char* a = "/*";\n#include "/etc/passwd"\n// */',
    "after one in a comment": '/*\n#include <a> */ #include "/etc/passwd"',
    "digraph": '%:include "/etc/passwd"',
    "digraph in parts": '%\\\n:include "/etc/passwd"',
    "trigraph": '??=include "/etc/passwd"',
    "trigraph splice": '#inc??/\nlude "/etc/passwd"',
    "no trigraph": 'int x; // ??/\n#include "/etc/passwd"',
    "splice": '#inc\\\nlude "/etc/passwd"',
    "splice with a space": '#inc\\ \nlude "/etc/passwd"',
    "no splice": '// \\ \n#include "/etc/passwd"',
    "splice in the path": '#include "\\\n/etc/passwd"',
    "splice in the dots": '#include "a/.\\\n./x"',
    "form feed": '\f#\v include\f"/etc/passwd"',
    "next": '#include_next "/etc/passwd"',
    "import": '#import "/etc/passwd"',
    "embed": "#embed <x>",
    "header made before": '#pragma GCC pch_preprocess "/etc/passwd"',
    "assembler": r'asm(".incbin \"/etc/passwd\"");',
    "assembler in parts": r'asm(".inc" "bin \"/etc/passwd\"");',
    "assembler over lines": 'asm(".inc"\n    "bin x");',
    "assembler in escapes": r'asm(".\x69nc\142in x");',
    "assembler includes": r'asm(".include \"/etc/passwd\"");',
}
HONEST = [
    "#include <cmath>", "#include<vector>", "#  include\t<sys/types.h> // sizes", "#include <bits/stdc++.h>",
    "#include <experimental/simd> /* fast */", '#include "cuda_fp16.h"', "#include <cub/block/block_reduce.cuh>",
    "#include <cooperative_groups/memcpy_async.h>", "#if __has_include(<omp.h>)\n#include <omp.h>\n#endif",
    "#define SUM(x) \\\n    (x + \\\n     x)", "#define NAME(x) #x", "// include the bias, then / by rows",
    "/* We include ../ nothing. */", 'asm volatile("" ::: "memory");', "#pragma omp simd", "#pragma GCC unroll 4",
    'asm volatile("prefetcht0 %0" : : "m"(*p));', "list.include(3);", "int a = 7 %:: b;", "#pragma once",
]  # fmt: skip


def reading(line, language="cpp"):
    text = KERNEL.replace("#include <cstdint>", f"{line}\n#include <cstdint>")
    assert text != KERNEL
    return read_reply(f"```cpp\n{text}```", Wanted(language, arguments=("x",)))


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_files_by_their_path_are_refused(name):
    found = reading(REFUSED[name])
    assert found.outcome is Outcome.BAD_HEADER
    assert "includ" in found.detail


@pytest.mark.parametrize("line", HONEST)
def test_headers_by_their_names_are_not(line):
    assert reads_files(f"{line}\n{KERNEL}") == ""
    assert reading(line).outcome is Outcome.MODULE


def test_comments_of_python_are_no_directives():
    source = "# include the bias in the sum\n# import nothing else\nimport torch\n"
    assert reads_files(source, python=True) == ""
    assert reads_files(source)
    assert reads_files(f'{source}CUDA = """\n#include "/etc/passwd"\n"""', python=True)


def test_examples_of_kernel_files_are_not_refused():
    folder = resources.files("kopt_rewrite") / "formats"
    for name in ("cpp.md", "cuda.md"):
        assert reads_files((folder / name).read_text()) == ""


@given(st.text(alphabet='#include <"/.*\\\n?=%:x>'))
def test_no_text_makes_it_raise(text):
    assert isinstance(reads_files(text), str)


@pytest.mark.parametrize(
    "piece",
    ["#", "/*", "*/", "*/ ", "\n#/*", "#include ", " ", "\\", "\\\n", '" ', '"', "\\x", "??/", "%:", "<a/",
     "*/#include <a>", "#include <a/"],
)  # fmt: skip
def test_it_takes_time_proportional_to_the_text(piece):
    began = time.monotonic()
    reads_files(piece * (256_000 // len(piece)))
    assert time.monotonic() - began < 3
