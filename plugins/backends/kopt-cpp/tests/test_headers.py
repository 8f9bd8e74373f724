"""A header that changed is never met by a binary that was made with the old one."""

from __future__ import annotations

import pytest

from kopt_cpp.compiler import find_compiler
from kopt_cpp.headers import contents

needs_a_compiler = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")


def of(source, *flags):
    return contents(source, find_compiler(), flags)


@needs_a_compiler
def test_a_source_without_headers_of_the_users_asks_nobody():
    assert of("#include <cmath>\n#  include <sys/types.h>\nint one;\n", "-O3") == {}


FIRST_LINES = {
    "quoted": '#include "scale.h"', "absolute": '#include "{header}"',
    "macro": "#define IT <scale.h>\n#include IT", "angle": "#include <scale.h>", "forced": "",
    "comment": '#/**/include "{header}"', "comment before": '/**/#include "{header}"',
    "digraph": '%:include "{header}"', "splice": '#inc\\\nlude "{header}"',
    "splice of windows": '#inc\\\r\nlude "{header}"', "up": "#include <../{header}>", "hidden word": '#\\\ninclude/**/"{header}"',
    "trigraph": '??=inc??/\nlude "{header}"',
}  # fmt: skip


@needs_a_compiler
@pytest.mark.parametrize("style", FIRST_LINES)
def test_a_changed_header_is_another_key(tmp_path, style):
    header = tmp_path / "with space" / "scale.h"
    header.parent.mkdir()
    header.write_text("#include <cstdint>\n#define SCALE 2\n")
    flags = {
        "quoted": [f"-I{header.parent}"], "macro": [f"-I{header.parent}"],
        "angle": [f"-I{header.parent}"], "forced": ["-include", str(header)],
        "trigraph": ["-trigraphs"],
    }.get(style, [])  # fmt: skip
    first_line = FIRST_LINES[style].format(header=header)
    if style == "up":  # from wherever the compiler's own headers are
        first_line = f"#include <{'../' * 20}{str(header)[1:]}>"
    source = f"{first_line}\nint twice(int x) {{ return SCALE * x; }}\n"
    before, again = of(source, *flags), of(source, *flags)
    header.write_text("#include <cstdint>\n#define SCALE 3\n")
    after = of(source, *flags)
    assert before == again != after
    assert any(name.endswith(str(header)) for name in before)


@needs_a_compiler
def test_what_the_assembler_reads_is_never_reused():
    source = '__asm__(".incbin \\"some/file\\"");\n'
    assert of(source) != of(source)


@needs_a_compiler
def test_a_word_in_a_comment_has_the_compiler_asked_and_is_reused():
    source = "// the rows include padding\n#include <cmath>\nint one;\n"
    assert of(source) == of(source) != {}


@needs_a_compiler
def test_what_the_compiler_cannot_follow_is_never_reused():
    source = '#include "no_such_header.h"\n'
    assert of(source) != of(source)
