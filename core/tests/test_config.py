from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopt.config import Settings, find_config, parse_duration, resolve, run_config
from kopt.errors import ConfigError, ExitCode
from kopt.model.budget import Budget
from kopt.settings import SETTINGS

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "kopt.toml"


def from_file(file: Path, text: str) -> Settings:
    file.write_text(text)
    return resolve({}, config_file=file)


def test_defaults_say_that_they_are_defaults() -> None:
    settings = resolve({})
    assert settings == Settings(origins=dict.fromkeys(SETTINGS, "default"))
    assert set(SETTINGS) == set(Settings.model_fields) - {"options", "origins"}
    assert all(setting.flag.startswith("--") and setting.meaning for setting in SETTINGS.values())


def test_each_layer_wins_over_the_one_below(file: Path) -> None:
    file.write_text('backend = "cpp"\nseed = 1\nmax_trials = 5\nmax_time = "1h30m"\n')
    settings = resolve(
        {"seed": 3, "backend": None, "strategies": []},
        config_file=file,
        environment={"seed": "2", "max_trials": "7"},
    )
    assert (settings.backend, settings.max_trials, settings.seed) == ("cpp", 7, 3)
    assert settings.max_time == 5400
    assert settings.strategies == ("starters", "autotune")
    assert settings.origins["backend"] == f"{file}:1"
    assert settings.origins["max_trials"] == "KOPT_MAX_TRIALS"
    assert settings.origins["seed"] == "--seed"
    assert settings.origins["max_time"] == f"{file}:4"
    assert settings.origins["search"] == "default"


def test_every_setting_can_be_given_in_every_layer(file: Path) -> None:
    text = {
        "backend": "b", "strategies": "a,b", "search": "s", "verifiers": "v", "profilers": "p,q",
        "judges": "j", "llm": "l", "executor": "e", "device": "cuda", "max_time": "90",
        "max_trials": "3", "max_tokens": "4", "max_usd": "0.5", "seed": "9", "build_workers": "2",
        "build_timeout": "2m", "run_timeout": "1.5s", "runs_dir": "r",
    }  # fmt: skip
    typed = (
        '[run]\nbackend="b"\nstrategies=["a","b"]\nsearch="s"\nverifiers=["v"]\n'
        'profilers=["p", "q"]\njudges=["j"]\nllm="l"\nexecutor="e"\ndevice="cuda"\nmax_time=90\n'
        "max_trials=3\nmax_tokens=4\nmax_usd=0.5\nseed=9\nbuild_workers=2\nbuild_timeout=120\n"
        'run_timeout=1.5\nruns_dir="r"\n'
    )
    assert set(text) == set(SETTINGS)
    settings = [from_file(file, typed), resolve({}, environment=text), resolve(text)]
    assert len({s.model_copy(update={"origins": {}}).model_dump_json() for s in settings}) == 1
    assert settings[0].strategies == ("a", "b")
    assert settings[0].run_timeout == 1.5
    assert not any("default" in s.origins.values() for s in settings)


def test_plugin_options_come_from_tables_and_the_command_line(file: Path) -> None:
    file.write_text(
        '[run]\nsearch = "beam"\n\n[search.beam]\nwidth = 4\n'
        '[strategy.autotune]\nbatch = 8\nsampler = "tpe"\n[backend."kopt-cpp:cpp"]\nflags = ["-O3"]\n'
    )
    settings = resolve(
        {}, ["strategy.autotune.batch=16", "llm.replay.file=a b.json", "judge.x.on=true"], file
    )
    assert settings.options == {
        "search.beam": {"width": 4},
        "strategy.autotune": {"batch": 16, "sampler": "tpe"},
        "backend.kopt-cpp:cpp": {"flags": ["-O3"]},
        "llm.replay": {"file": "a b.json"},
        "judge.x": {"on": True},
    }
    assert settings.origins["strategy.autotune.sampler"] == f"{file}:8"
    assert settings.origins["strategy.autotune.batch"] == "-o strategy.autotune.batch=16"
    assert settings.origins["backend.kopt-cpp:cpp.flags"] == f"{file}:10"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8), ("0.5", 0.5), ("true", True), ('"8"', "8"), ("[1, 2]", [1, 2]), ("tpe", "tpe"),
        ("{a = 1}", {"a": 1}), ("", ""), ("a=b", "a=b"), ("1\nx = 2", "1\nx = 2"), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_an_options_value_is_toml_or_else_text(text: str, value: object) -> None:
    assert resolve({}, [f"search.s.k={text}"]).options == {"search.s": {"k": value}}


WRONG_FILES = {
    "unknown setting": ("seed = 1\nmax_tme = 5\n", r":2: unknown setting 'max_tme'; did you mean 'max_time'"),
    "singular": ('strategy = "x"\n', r":1: unknown setting 'strategy'; did you mean 'strategies'"),
    "unknown in run": ("[run]\nseeed = 1\n", r":2: unknown setting 'seeed'; did you mean 'seed'"),
    "far from all": ("[run]\nqqq = 1\n", r":2: unknown setting 'qqq'; known: backend, build_"),
    "unknown role": ("[stategy.a]\nb = 1\n", r":1: unknown table 'stategy'; did you mean 'strategy'"),
    "a setting as a table": ("[strategies]\na = 1\n", r":1: unknown table 'strategies'; did you"),
    "no name": ("[strategy]\nbatch = 8\n", r":2: strategy.batch is no table of options; write \[str"),
    "run is no table": ("run = 3\n", r":1: 'run' is a table"),
    "set twice": ("seed = 1\n[run]\nseed = 2\n", r":1: 'seed' is set twice"),
    "no toml": ("seed = \n", r"kopt.toml: not valid TOML: .*line 1"),
    "a setting beside a table": ('search = "b"\n[search.b]\nw = 1\n', r"put it in \[run\]"),
    "type: text": ("backend = 3\n", r":1: backend: 3 is no text"),
    "type: empty": ('search = " "\n', r":1: search: it is empty"),
    "type: number in quotes": ('max_trials = "3"\n', r":1: max_trials: '3' is text; write a whole"),
    "type: list in quotes": ('judges = "a,b"\n', r':1: judges: .* write a list, as \["a", "b"\]'),
    "type: no list": ("judges = 3\n", r":1: judges: 3 is no list"),
    "type: list of numbers": ("judges = [3]\n", r":1: judges: 3 is no text"),
    "type: fraction": ("max_trials = 3.0\n", r":1: max_trials: 3.0 is no whole number"),
    "type: bool": ("max_usd = true\n", r":1: max_usd: True is no number"),
    "type: duration": ("max_time = [1]\n", r":1: max_time: \[1\] is no duration"),
    "no such device": ('device = "tpu"\n', r":1: device: 'tpu' is no device; write 'cpu' or"),
    "a list of devices": ('device = ["cpu"]\n', r":1: device: .* is no device"),
    "twice in a list": ('judges = ["a", "a"]\n', r":1: judges: 'a' is named twice"),
    "no strategy": ("strategies = []\n", r":1: strategies: the list is empty"),
    "no verifier": ("verifiers = []\n", r":1: verifiers: the list is empty"),
    "zero time": ('max_time = "0m"\n', r":1: max_time: '0m' must be above zero"),
    "negative time": ("max_time = -5\n", r":1: max_time: -5 must be above zero"),
    "endless": ("max_time = inf\n", r":1: max_time: inf must be above zero"),
    "zero trials": ("max_trials = 0\n", r":1: max_trials: 0 must be above zero"),
    "negative tokens": ("max_tokens = -1\n", r":1: max_tokens: -1 must be above zero"),
    "no money": ("max_usd = 0.0\n", r":1: max_usd: 0.0 must be above zero"),
    "not a number": ("max_usd = nan\n", r":1: max_usd: nan must be above zero"),
    "no workers": ("build_workers = 0\n", r":1: build_workers: 0 must be above zero"),
    "negative seed": ("seed = -1\n", r":1: seed: -1 must be zero or above"),
    "no deadline": ('run_timeout = "none"\n', r":1: run_timeout: 'none' is no duration"),
    "an option that is a date": ("[search.b]\nw = 2020-01-01\n", r":2: search.b.w: .* cannot be stored"),
    "an option without end": ("[search.b]\nw = [inf]\n", r":2: search.b.w: .* cannot be stored"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_FILES)
def test_a_wrong_file_is_refused_with_its_line(file: Path, name: str) -> None:
    text, words = WRONG_FILES[name]
    if name == "set twice":
        words = words.replace(":1:", ":[13]:")
    with pytest.raises(ConfigError, match=words) as caught:
        from_file(file, text)
    assert str(file) in str(caught.value)
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("command_line", "options", "environment", "words"),
    [
        ({"max_time": "-5m"}, [], {}, r"--max-time: '-5m' must be above zero"),
        ({"max_time": "soon"}, [], {}, r"--max-time: 'soon' is no duration; write '20m'"),
        ({"max_trials": 0}, [], {}, r"--max-trials: 0 must be above zero"),
        ({"max_usd": "1e999"}, [], {}, r"--max-usd: '1e999' must be above zero"),
        ({"strategies": ["a", "a"]}, [], {}, r"--strategy: 'a' is named twice"),
        ({"stratgies": ["a"]}, [], {}, r"unknown setting 'stratgies'; did you mean 'strategies'"),
        ({}, [], {"max_tme": "5m"}, r"'KOPT_MAX_TME'; did you mean 'KOPT_MAX_TIME'"),
        ({}, [], {"seed": "x"}, r"KOPT_SEED: 'x' is no whole number"),
        ({}, [], {"max_usd": "x"}, r"KOPT_MAX_USD: 'x' is no number"),
        ({}, ["strategy.autotune.batch"], {}, r"-o strategy.autotune.batch: not ROLE.NAME.KEY=VAL"),
        ({}, ["strategy.autotune=3"], {}, r"not ROLE.NAME.KEY=VALUE"),
        ({}, ["stategy.a.b=3"], {}, r"-o stategy.a.b=3: unknown role .* did you mean 'strategy'"),
        ({}, ["llm.a.b=nan"], {}, r"llm.a.b: nan cannot be stored"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_its_origin(
    command_line: dict[str, object], options: list[str], environment: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve(command_line, options, None, environment)


def test_none_lifts_a_limit(file: Path) -> None:
    file.write_text('max_time = "none"\nmax_trials = "none"\nllm = "x"\n')
    settings = resolve({"llm": "none"}, config_file=file)
    assert (settings.max_time, settings.max_trials, settings.llm) == (None, None, None)
    assert settings.origins["llm"] == "--llm"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('"seed" = 1\n', 1),
        ("run.seed = 1\n", 1),
        ("run = {seed = 1}\n", 1),
        ("[ run ] # here\n# seed = 3\n  seed=1\n", 3),
        ('[search.x]\ntext = """\nseed = 2\n[run]\n"""\nseed = 5\n[run]\nseed = 1\n', 8),
        ("[search.x]\ntext = '''one line'''\n[run]\nseed = 1\n", 4),
        ('judges = [\n  "a",\n]\n\nseed = 1\n', 5),
    ],
)
def test_the_line_of_a_value_is_found(file: Path, text: str, line: int) -> None:
    settings = from_file(file, text)
    assert settings.seed == 1
    assert settings.origins["seed"] == f"{file}:{line}"


def test_the_line_of_an_inline_option_is_found(file: Path) -> None:
    settings = from_file(file, "seed = 1\n[strategy]\nautotune = {batch = 8}\n")
    assert settings.options == {"strategy.autotune": {"batch": 8}}
    assert settings.origins["strategy.autotune.batch"] == f"{file}:3"


def test_files_are_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, problem = tmp_path / "here", tmp_path / "problem"
    here.mkdir()
    problem.mkdir()
    monkeypatch.chdir(here)
    (problem / "reference.py").write_text("")
    assert find_config() is None
    assert find_config(problem=problem) is None
    (problem / "kopt.toml").write_text("")
    assert find_config(problem=problem) == problem / "kopt.toml"
    assert find_config(problem=problem / "reference.py") == problem / "kopt.toml"
    (here / "kopt.toml").write_text("")
    assert find_config(problem=problem) == Path("kopt.toml")
    (here / "other.toml").write_text("")
    assert find_config(Path("other.toml"), problem) == Path("other.toml")
    with pytest.raises(ConfigError, match=r"no\.toml: no such configuration file"):
        find_config(Path("no.toml"))


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "kopt.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve({}, config_file=tmp_path / "kopt.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve({}, config_file=tmp_path)


units = {"h": 3600.0, "m": 60.0, "s": 1.0}


@given(st.lists(st.tuples(st.integers(1, 10**6), st.sampled_from("hms")), min_size=1, max_size=4))
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    expected = sum(count * units[unit] for count, unit in parts)
    for separator in ("", " "):
        text = separator.join(f"{count}{unit}" for count, unit in parts)
        assert parse_duration(text) == parse_duration(text.upper()) == expected
    assert parse_duration(f"-{expected}".lstrip("-")) == expected


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_a_number_is_seconds(seconds: float) -> None:
    assert parse_duration(seconds) == seconds
    assert parse_duration(f"{seconds:.12f}") == pytest.approx(seconds, abs=1e-12)


@given(st.text(max_size=12))
def test_any_text_is_a_positive_duration_or_refused(text: str) -> None:
    try:
        assert 0 < parse_duration(text) < float("inf")
    except ValueError as error:
        assert repr(text) in str(error)


@pytest.mark.parametrize(
    "wrong", ["", "m", "5x", "5m!", "1h 30", "1m-2s", "five", True, None, b"5m"]
)
def test_what_is_no_duration_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(wrong)


def test_milliseconds_and_days() -> None:
    assert parse_duration("250ms") == 0.25
    assert parse_duration("1d2h") == 93600


def test_a_runs_configuration_carries_every_setting() -> None:
    settings = resolve(
        {
            "max_time": 60, "max_trials": 3, "max_tokens": 4, "max_usd": 0.5, "llm": "replay",
            "judges": ["j"], "profilers": ["p"], "executor": "ray", "build_workers": 2,
            "build_timeout": 7, "run_timeout": 8, "seed": 5,
        },
        ["search.greedy.width=2"],
    )  # fmt: skip
    config = run_config(settings, "cuda", "triton")
    assert config.budget == Budget(seconds=60, trials=3, tokens=4, usd=0.5)
    assert (config.device, config.backend, config.seed) == ("cuda", "triton", 5)
    assert (config.build_workers, config.build_seconds, config.run_seconds) == (2, 7, 8)
    assert (config.judges, config.profilers) == (("j",), ("p",))
    assert (config.llm, config.executor, config.search) == ("replay", "ray", "beam")
    assert (config.strategies, config.verifiers) == (("starters", "autotune"), ("verify",))
    assert config.options == {"search.greedy": {"width": 2}}


def test_the_page_lists_every_setting_flag_and_default() -> None:
    page = (REPOSITORY / "docs" / "reference" / "config.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(--[\w-]+)` \| ([^|]+) \|", page, re.MULTILINE)
    assert [(name, flag) for name, flag, _ in rows] == [(n, s.flag) for n, s in SETTINGS.items()]
    defaults = Settings()
    for name, _, shown in rows:
        text = shown.strip().strip("`")
        default = getattr(defaults, name)
        if text == "none":
            assert default in (None, ()), name
        else:
            assert SETTINGS[name].read(text) == default, name


def test_the_example_on_the_page_is_valid(file: Path) -> None:
    page = (REPOSITORY / "docs" / "reference" / "config.md").read_text()
    [example] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    settings = from_file(file, example)
    assert settings.options
    assert settings.max_time == 5400


def test_importing_the_configuration_is_light() -> None:
    script = (
        "import sys, kopt.config, kopt.env, kopt.runs.store, kopt.runs.builds;"
        "heavy = {'torch', 'triton', 'numpy', 'structlog', 'rich', 'typer'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
