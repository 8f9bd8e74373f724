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


@needs_a_compiler
@pytest.mark.parametrize("style", ["quoted", "absolute", "macro", "angle", "forced"])
def test_a_changed_header_is_another_key(tmp_path, style):
    header = tmp_path / "with space" / "scale.h"
    header.parent.mkdir()
    header.write_text("#include <cstdint>\n#define SCALE 2\n")
    flags = (
        []
        if style == "absolute"
        else ["-include", str(header)]
        if style == "forced"
        else [f"-I{header.parent}"]
    )
    first_line = {
        "quoted": '#include "scale.h"', "absolute": f'#include "{header}"',
        "macro": "#define IT <scale.h>\n#include IT", "angle": "#include <scale.h>", "forced": "",
    }[style]  # fmt: skip
    source = f"{first_line}\nint twice(int x) {{ return SCALE * x; }}\n"
    before, again = of(source, *flags), of(source, *flags)
    header.write_text("#include <cstdint>\n#define SCALE 3\n")
    after = of(source, *flags)
    assert before == again != after
    assert str(header) in before


@needs_a_compiler
def test_what_the_compiler_cannot_follow_is_never_reused():
    source = '#include "no_such_header.h"\n'
    assert of(source) != of(source)
