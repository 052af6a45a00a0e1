"""The command `vcsg` as a user gives it: what it prints, what it leaves, how it fails and how it is interrupted."""

from __future__ import annotations

import ast
import html
import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from study_sample import PROBLEM, network
from typer.testing import CliRunner, Result

import vcsg
from vcsg.cli import app
from vcsg.commands import options
from vcsg.study.records import load
from vcsg.study.running import board as progress
from vcsg.training.saving import CHECKPOINT_SECONDS

SOURCE = Path(vcsg.__file__).parents[1]
TINY = ("--budget", "2passes", "--every", "1")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VCSG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VCSG_DATA", raising=False)


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def start(*words: str, stderr: int = subprocess.PIPE, **settings: str) -> subprocess.Popen[str]:
    """A process of its own, where warnings are errors, in a group of its own, to be interrupted alone."""
    environment = _plain() | settings
    command = [sys.executable, "-m", "vcsg", *words]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
    )


def _plain() -> dict[str, str]:
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    plain = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS")}
    plain |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
    return plain | {"PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8"}


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, out, err or ""


# --- run


def test_run_leaves_its_records_and_says_what_came_out() -> None:
    done = call(
        "run", PROBLEM, "--method", "svrg", "--seed", "3", *TINY, "--out", "out", "--set", "b=4", "--set", "L=1"
    )
    assert done.exit_code == 0, done.output
    (record,) = load("out")
    assert (record.status, record.config.seed, record.config.options) == ("finished", 3, {"b": 4, "L": 1})
    assert (Path("out") / "weights.safetensors").is_file()
    assert "SVRG, b=4" in done.output
    assert "Records: out" in done.output


def test_the_command_in_a_record_makes_the_run_again() -> None:
    assert call("run", network(Path.cwd()), "--method", "sgd-momentum", *TINY, "--out", "one").exit_code == 0
    (first,) = load("one")
    words = shlex.split(first.config.command.replace("DIR", "two"))
    assert words[0] == "vcsg"
    assert call(*words[1:]).exit_code == 0
    (second,) = load("two")
    assert [row["train_loss"] for row in second.evaluations] == [row["train_loss"] for row in first.evaluations]


def test_options_come_from_a_file_too() -> None:
    Path("options.toml").write_text("L = 1.0\n[scsg]\nb = 4\nK = 1.0\n")
    done = call("run", PROBLEM, "--method", "scsg", *TINY, "--config", "options.toml", "--set", "b=2", "--out", "out")
    assert done.exit_code == 0, done.output
    (record,) = load("out")
    assert record.config.options == {"L": 1.0, "b": 4, "K": 1.0}


def test_a_run_that_fails_is_named() -> None:
    done = call("run", PROBLEM, "--method", "sgd-momentum", "--set", "lr=1e300", *TINY, "--out", "out")
    assert done.exit_code == 1
    assert re.search(r"vcsg: SGD, momentum 0.9: diverged: the loss is (inf|nan) in step \d", done.stderr)


# --- compare


def test_compare_from_end_to_end() -> None:
    """A process of its own, piped: plain lines, the table, the verdict. Then figures and report, from records."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("plotly")
    words = ["compare", network(Path.cwd()), "--methods", "vcsg,sgd,tuned:sgd-momentum", "--seeds", "2", *TINY]
    words += ["--set", "vcsg.b_min=4", "--set", "sgd.b=8", "--trials", "3", "--target", "test-error=0.6", "--jobs", "2"]
    words += ["--no-report", "--out", "out"]
    status, out, err = finish(start(*words))
    assert status == 0, err
    assert "\x1b" not in out + err
    assert "\r" not in out + err
    assert len(re.findall(r"^run \d of 9, .*: \d\.\d passes, \d\.\d s, training loss ", err, re.MULTILINE)) == 9
    assert "tiny/lenet-300-100 (n = 60), seeds 0, 1" in out
    for label in ("VCSG, b_min=4", "SGD, b=8", "SGD, momentum 0.9, b=64"):
        assert re.search(rf"^ {label} +(default|tuned) +(2 of 2 seeds|1 of 2 seeds|not reached) ", out, re.MULTILINE)
    assert "Lowest test error at the end: " in out
    assert "2 runs at a time shared the machine" in out
    assert "tuned: 3 short runs per method chose the step sizes" in out
    study = json.loads(Path("out/study.json").read_text())
    assert study["commands"] == [shlex.join(["vcsg", *words])]
    assert study["targets"] == [{"metric": "test_error", "value": 0.6}]
    assert study["methods"] == ["default/vcsg", "default/sgd", "tuned/sgd-momentum"]
    assert len(load("out/runs")) == 6
    assert len(load("out/search")) == 3

    again = call("report", "out", "--out", "again/page.html")
    assert again.exit_code == 0, again.output
    assert _table(again.output) == _table(out)
    assert Path("again/page.html").is_file()
    assert {path.suffix for path in Path("again/page-figures").iterdir()} == {".png", ".pdf"}


def test_a_method_that_diverges_is_named_and_the_others_are_compared() -> None:
    words = ["compare", PROBLEM, "--methods", "vcsg,sgd,sgd-momentum", *TINY, "--seeds", "1", "--no-report"]
    done = call(*words, "--set", "sgd-momentum.lr=1e300")
    assert done.exit_code == 1
    assert "vcsg: runs/default/sgd-momentum/seed-0: diverged: the loss is" in done.stderr
    assert "SGD, momentum 0.9, lr=1e+300 (1 failed)" in done.stdout
    assert "Lowest ‖∇f‖² at the end: " in done.stdout


def test_nothing_to_show_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from vcsg.study.running import tasks

    def broken(*_: object) -> None:
        raise FloatingPointError("no L to be had")

    monkeypatch.setattr(tasks, "estimate", broken)
    words = ["compare", network(Path.cwd()), "--methods", "vcsg", "--protocol", "paper", *TINY, "--seeds", "1"]
    done = call(*words)
    assert done.exit_code == 1
    assert done.stdout == "No run has come to its first evaluation.\n"
    assert "vcsg: smoothness/paper/vcsg/seed-0.json: no L to be had" in done.stderr


def test_figures_and_report_are_made_where_the_study_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are drawn is tested elsewhere, and what they need may be missing."""
    from vcsg.study import report
    from vcsg.study.view import figures

    drawn: list[Path] = []
    monkeypatch.setattr(figures, "draw", lambda runs, out, targets: drawn.append(out) or [out / "one.png"])

    def write(found: object, folders: object, path: Path, pictures: list[Path]) -> Path:
        assert pictures == [path.parent / "figures" / "one.png"]
        drawn.append(path)
        return path

    monkeypatch.setattr(report, "write", write)
    words = ["compare", PROBLEM, "--methods", "vcsg,sgd", *TINY, "--seeds", "1", "--target", "train-loss=0.1"]
    done = call(*words)
    assert drawn == [Path("study-output/figures"), Path("study-output/report.html")]
    assert done.stdout.endswith("Figures: study-output/figures\nReport: study-output/report.html\n")
    other = call("report", "study-output", "--target", "grad-norm2=0.5")
    assert "grad-norm2=0.5" in other.stdout
    assert "train-loss=0.1" not in other.stdout

    def missing(*_: object) -> None:
        raise ModuleNotFoundError("it needs something: pip install something")

    monkeypatch.setattr(figures, "draw", missing)
    monkeypatch.setattr(report, "write", missing)
    done = call(*words)
    assert done.exit_code == 0
    assert "No figures: it needs something" in done.stderr
    assert "No report: it needs something" in done.stderr
    done = call("report", "study-output")
    assert done.exit_code == 1
    assert "vcsg: it needs something" in done.stderr


def _count_parses(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A list that grows by the path of every record that is read."""
    from vcsg.study import records

    parsed: list[Path] = []
    read = records._read
    monkeypatch.setattr(records, "_read", lambda head: parsed.append(head) or read(head))
    return parsed


@pytest.mark.parametrize("methods", ["vcsg,sgd,tuned:svrg,tuned:sgd", "gd,sgd"])
def test_terminal_and_report_say_the_same(methods: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the page finds stands in the terminal too, and every record is read once for both."""
    pytest.importorskip("plotly")
    from vcsg.study.view import figures

    monkeypatch.setattr(figures, "draw", lambda *_: [])
    words = ["compare", network(Path.cwd()), "--methods", methods, *TINY, "--seeds", "2", "--trials", "3"]
    words += ["--set", "b=8", "--target", "test-error=0.6"]
    assert call(*words, "--no-report").exit_code == 0
    parsed = _count_parses(monkeypatch)
    done = call("report", "study-output")
    assert sorted(parsed) == sorted(Path("study-output").rglob("run.json"))
    page = Path("study-output/report.html").read_text(encoding="utf-8")
    section = page[page.index('id="findings"') :]
    shown = html.unescape(re.sub(r"<[^>]+>", "", section[section.index(">") + 1 : section.index("</section>")]))
    found = " ".join(shown.split())
    assert found in " ".join(done.stdout.split())
    assert ("variance reduction" in found) == ("svrg" in methods)


def test_a_study_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly")
    from vcsg.study.view import figures

    monkeypatch.setattr(figures, "draw", lambda *_: [])
    parsed = _count_parses(monkeypatch)
    assert call("compare", PROBLEM, "--methods", "vcsg,sgd", *TINY, "--seeds", "2").exit_code == 0
    assert sorted(parsed) == sorted(Path("study-output").rglob("run.json"))
    assert len(parsed) == 4


def _table(output: str) -> list[str]:
    return [line for line in output.splitlines() if "  " in line]


def test_protocols_can_be_repeated_or_listed() -> None:
    words = ["compare", PROBLEM, "--methods", "vcsg,svrg", *TINY, "--seeds", "5,", "--no-report"]
    done = call(*words, "--protocol", "default,paper")
    assert done.exit_code == 0, done.output
    assert {record.config.seed for record in load("study-output")} == {5}
    assert "the paper's SVRG" in done.output
    again = call(*words, "--protocol", "default", "--protocol", "paper")
    assert again.exit_code == 0, "it is the same study"


def test_narrow_terminals_get_fewer_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    from vcsg.study.view import tables

    words = ["compare", PROBLEM, "--methods", "vcsg,sgd", *TINY, "--seeds", "2", "--target", "grad-norm2=10"]
    wide = call(*words, "--no-report").output
    assert "ratio" in wide
    monkeypatch.setattr(tables, "WIDTH", 45)
    narrow = call(*words, "--no-report").output
    assert "ratio" not in narrow
    assert "seconds" in narrow
    assert all(len(line) <= 45 for line in _table(narrow) if line.startswith(" "))


def test_a_finished_study_is_shown_and_not_made_again() -> None:
    words = ["compare", PROBLEM, "--methods", "vcsg,sgd", *TINY, "--seeds", "1", "--no-report"]
    first, second = call(*words), call(*words)
    assert first.exit_code == second.exit_code == 0
    assert "run 1 of 2" in first.stderr
    assert second.stderr == ""
    assert second.stdout == first.stdout


def test_the_demo_of_the_makefile_is_a_study_that_runs() -> None:
    """As it stands there, but for its length."""
    recipe = (SOURCE.parent / "Makefile").read_text().split("\ndemo:", 1)[1].split("\n\n")[0]
    words = shlex.split(recipe.split("-m vcsg ", 1)[1].replace("\\\n", " "))
    short = ["--budget", "0.1passes", "--seeds", "1", "--jobs", "1", "--trials", "3", "--no-report"]
    done = call(*words, *short)
    assert done.exit_code == 0, done.output
    assert len(load("demo-output/runs")) == 6
    assert "Lowest test error at the end: " in done.stdout


# --- --import


def documented() -> tuple[str, list[str]]:
    """The file and the command of docs/study.md that show how to add methods, models, data and baselines."""
    page = (SOURCE.parent / "docs/study.md").read_text()
    section = page.split("## Your own methods, models, data and baselines\n", 1)[1].split("\n## ", 1)[0]
    file, command = (re.search(rf"```{kind}\n(.*?)```", section, re.DOTALL) for kind in ("python", "sh"))
    assert file
    assert command
    return file[1], shlex.split(command[1].removeprefix("vcsg "))


def test_names_of_ones_own_from_end_to_end() -> None:
    """In two processes, then continued without --import; a file that has changed since is refused."""
    file, words = documented()
    Path("mine.py").write_text(file)
    status, out, err = finish(start(*words, "--no-report"))
    assert status == 0, err
    records = load("mine/runs")
    assert {record.status for record in records} == {"finished"}
    assert {record.config.method for record in records} == {"calm-svrg", "sgd", "adagrad"}
    assert {(record.config.workload, record.config.n) for record in records} == {("rings/tanh-net", 400)}
    assert "By the final test error, " in out
    assert "variance reduction" in out, "that calm-svrg reduces it is read off its weights"
    assert f"--import {Path('mine.py').resolve()}" in records[0].config.command

    shutil.rmtree("mine/runs/default/adagrad")
    place = words.index("--import")
    rest = [*words[:place], *words[place + 2 :]]
    status, out, err = finish(start(*rest, "--no-report"))
    assert status == 0, err
    assert "adagrad" in out
    assert len(load("mine/runs")) == 6

    Path("mine.py").write_text(file.replace("damping: float = 0.8", "damping: float = 0.7"))
    status, _, err = finish(start(*words, "--no-report"))
    assert status == 2
    assert re.search(r"mine holds another study \(imports was mine\.py \w+, now mine\.py \w+\)", err)


def test_a_run_with_a_module_of_ones_own_is_continued() -> None:
    Path("parts").mkdir()
    Path("parts/own.py").write_text(documented()[0])
    words = ["run", "rings/tanh-net", "--method", "calm-svrg", "--out", "out", "--resume", "--every", "1"]
    status, _, err = finish(start(*words, "--budget", "2passes", "--import", "parts.own"))
    assert status == 0, err
    status, out, err = finish(start(*words, "--budget", "2passes"))
    assert status == 0, err
    assert "holds this run already, and it is finished" in err
    for what, names in (
        ("methods", ("calm-svrg", "adagrad")),
        ("workloads", ("rings/tanh-net",)),
    ):
        status, out, err = finish(start("list", what, "--import", "parts/own.py"))
        assert status == 0, err
        assert all(re.search(rf"^{name} ", out, re.MULTILINE) for name in names)


@pytest.mark.parametrize(
    ("file", "name", "message"),
    [
        (
            None,
            "none.py",
            "--import none.py: there is no such file; give the path of a Python file",
        ),
        (None, "no.such.module", "--import no.such.module: ModuleNotFoundError: No module named 'no'"),
        ("x = 1\n1 / 0\n", "bad.py", r"--import \S+/bad.py, line 2: ZeroDivisionError: division by zero"),
        ("def f(:\n", "bad.py", r"--import \S+/bad.py: SyntaxError: "),
        ("import vcsg\n@vcsg.register\ndef svrg(): ...\n", "bad.py", "line 2: .*there is a method 'svrg' already"),
    ],
    ids=["no file", "no module", "error", "syntax", "name"],
)
def test_an_import_that_fails_is_said_in_one_line(file: str | None, name: str, message: str) -> None:
    if file is not None:
        Path(name).write_text(file)
    done = call("compare", PROBLEM, "--import", name)
    assert done.exit_code == 2
    assert re.search(message, done.stderr), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


# --- Ctrl-C


def _wait_for_rows(folder: Path, runs: int) -> None:
    end = time.monotonic() + 240  # seconds, for a machine with much else to do
    while len(list(folder.rglob("evaluations.jsonl"))) < runs:
        assert time.monotonic() < end, "nothing was evaluated"
        time.sleep(0.05)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("jobs", "number", "expected"), [(1, signal.SIGINT, 130), (2, signal.SIGINT, 130), (2, signal.SIGTERM, 143)]
)
def test_a_signal_keeps_everything(jobs: int, number: int, expected: int) -> None:
    words = ["compare", PROBLEM, "--methods", "svrg,sgd,vcsg", "--seeds", "1", "--no-report", "--every", "5"]
    words += ["--jobs", str(jobs), "--out", "out", "--set", "sgd.b=1"]
    process = start(*words, "--budget", "20000passes")
    _wait_for_rows(Path("out"), jobs)
    process.send_signal(number)
    status, out, err = finish(process)
    assert status == expected, err
    assert "Traceback" not in err
    assert len(list(Path("out").rglob("checkpoint-*.vcsg"))) == jobs
    assert len(re.findall(r"\(1 interrupted\)", out)) == jobs
    assert "there is nothing to compare" in out
    found = load("out")
    assert {record.status for record in found} == {"interrupted"}
    assert len(found) == jobs
    assert all(record.final["passes"] > record.evaluations[0]["passes"] for record in found)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_in_a_run() -> None:
    process = start("run", PROBLEM, "--budget", "20000passes", "--out", "out")
    _wait_for_rows(Path("out"), 1)
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)
    assert status == 130, err
    assert "(1 interrupted)" in out
    (record,) = load("out")
    assert record.status == "interrupted"
    assert "grad_norm2" in record.final


def test_what_was_killed_is_readable() -> None:
    process = start("run", PROBLEM, "--budget", "20000passes", "--every", "1", "--out", "out")
    _wait_for_rows(Path("out"), 1)
    time.sleep(0.2)
    process.kill()
    finish(process)
    (record,) = load("out")
    assert record.status == "running"
    assert record.evaluations


# --- progress


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_bars_on_a_terminal() -> None:
    import pty

    here, there = pty.openpty()
    chunks: list[bytes] = []

    def read() -> None:
        while True:
            try:
                chunks.append(os.read(here, 4096))
            except OSError:  # the other end is closed
                return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    # A second each, so that bars are drawn ten times in either run, however fast the machine is.
    words = ["compare", PROBLEM, "--methods", "vcsg,svrg", "--budget", "1s", "--seeds", "1", "--no-report"]
    status, out, _ = finish(start(*words, stderr=there, TERM="xterm", COLUMNS="150"))
    os.close(there)
    reader.join()
    os.close(here)
    shown = b"".join(chunks).decode()
    assert status == 0, shown
    assert "\x1b" not in out
    for part in ("run 1 of 2, default, VCSG, seed 0: ", "1 of 2 runs done", " passes, j=", "inner", "B=", "loss", "━"):
        assert part in shown


def test_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run has some on its way, and its end is told once."""
    monkeypatch.setattr(progress, "PATIENCE", -1.0)
    file = io.StringIO()
    rows = [{"passes": float(k), "seconds": 6.0 * k, "train_loss": 1 / k} for k in (1, 2)]
    with progress.board(Console(file=file), total=2, done=0) as board:
        board.tell(0, progress.Began("SGD, seed 0", counted=True))
        for row in rows:
            board.tell(0, progress.Evaluated(row))
        board.tell(0, progress.Ended(rows[-1]))
    assert file.getvalue().splitlines() == [
        "run 1 of 2, SGD, seed 0: 1.0 passes, 6.0 s, training loss 1",
        "run 1 of 2, SGD, seed 0: 2.0 passes, 12.0 s, training loss 0.5",
    ]


# --- the rest


def test_version_help_and_module() -> None:
    assert call("--version").output == f"vcsg {vcsg.__version__}\n"
    shown = call("--help").output
    for command in ("run", "compare", "reproduce", "report", "list", "data"):
        assert f"\n  {command} " in shown
    assert call().exit_code == 2
    status, out, err = finish(start("--version"))
    assert (status, out, err) == (0, f"vcsg {vcsg.__version__}\n", "")


def test_help_and_completion_load_neither_torch_nor_what_draws() -> None:
    """Of every command too: what takes seconds to import is imported when a command runs."""
    heavy = {"torch", "numpy", "scipy", "matplotlib", "pandas", "plotly", "rich", "triton"}
    for words in ([], ["compare"], ["data", "fetch"]):
        code = f"import sys; from vcsg.__main__ import main; sys.argv = ['vcsg', *{words}, '--help']\n"
        code += "try: main()\nfinally: print(sorted(set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], env=_plain(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Usage: vcsg" in done.stdout
        loaded = set(ast.literal_eval(done.stdout.strip().splitlines()[-1]))
        assert not heavy & loaded


@pytest.mark.parametrize(
    ("typed", "expected", "refused"),
    [
        ("vcsg comp", "compare", "report"),
        ("vcsg run mnist-mini/lenet-3", "mnist-mini/lenet-300-100", "mnist-mini/lenet-5"),
        ("vcsg run --method scs", "scsg", "vcsg"),
        ("vcsg compare --methods vcsg,scs", "vcsg,scsg", "scsg"),
        ("vcsg compare --protocol paper,tu", "paper,tuned", "tuned"),
        ("vcsg data fetch cif", "cifar10", "mnist"),
        ("vcsg reproduce --data-set tiny", "tiny-imagenet", "mnist"),
        ("vcsg run --device cp", "cpu", "cuda"),
    ],
)
def test_a_shell_completes_commands_and_names(
    typed: str, expected: str, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question as the script of `vcsg --show-completion bash` asks it."""
    words = typed.split()
    asked = {"_VCSG_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    done = CliRunner().invoke(app, [], prog_name="vcsg", env=asked)
    offered = done.output.split()
    assert expected in offered
    assert refused not in offered


def test_the_defaults_of_options_are_those_of_the_library() -> None:
    """Help shows them without importing what they belong to."""
    assert options.CHECKPOINT_SECONDS == CHECKPOINT_SECONDS


def test_lists() -> None:
    methods = call("list", "methods").output
    assert re.search(r"^vcsg +VCSG +eps, K, ", methods, re.MULTILINE)
    assert re.search(r"^sgd-momentum ", methods, re.MULTILINE)
    workloads = call("list", "workloads").output
    assert re.search(r"^mnist-mini/lenet-300-100 +n =  10,000 +266,610 parameters$", workloads, re.MULTILINE)
    assert re.search(r"^mnist/lenet-300-100 .* download: \d+ MB$", workloads, re.MULTILINE)


def test_data_where() -> None:
    shown = call("data", "where", "--data-dir", "nowhere").output
    assert shown.startswith("Data sets are looked for in: nowhere\n")
    assert re.search(r"^mnist-mini +10,000 samples  in the package$", shown, re.MULTILINE)
    assert re.search(r"^mnist +– samples  not found: vcsg data fetch mnist --data-dir nowhere$", shown, re.MULTILINE)
    assert call("data", "fetch", "mnist-mini").exit_code == 0


def test_data_where_counts_what_is_there() -> None:
    for place in ("train/n00000001/images/n00000001_0.JPEG", "train/n00000001/images/n00000001_7.JPEG", "wnids.txt"):
        file = Path("data/tiny-imagenet/tiny-imagenet-200") / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    shown = call("data", "where", "--data-dir", "data").output
    assert re.search(r"^tiny-imagenet +2 samples  data/tiny-imagenet, a part of 100,000$", shown, re.MULTILINE)


def test_a_download_without_network_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy is a port of this machine where nobody listens."""
    pytest.importorskip("pooch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name.upper(), "" if name == "no_proxy" else f"http://127.0.0.1:{port}")
    done = call("data", "fetch", "tiny-imagenet", "--data-dir", "data")
    assert done.exit_code == 1
    (line,) = done.stderr.strip().splitlines()
    assert "could not be downloaded (no connection to cs231n.stanford.edu: is there a network?): try again" in line
    assert len(line) < 250
    assert not list(Path("data").rglob("*.zip*"))


def test_a_place_that_cannot_be_written_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing stops the superuser, who may run this: the answer of the system is put in its place."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    done = call("compare", PROBLEM, "--out", "locked/study")
    assert done.exit_code == 1
    assert re.search(
        r"^vcsg: --out locked/study: nothing can be written to \S+; give a folder of your own$", done.stderr
    )
    assert not Path("locked").exists()


def test_reproduce_names_what_is_not_there() -> None:
    Path("empty").mkdir()
    done = call("reproduce", "--data-dir", "empty")
    assert done.exit_code == 1
    for name in ("mnist", "cifar10", "tiny-imagenet"):
        assert f"The data of {name} are missing: fetch them with vcsg data fetch {name}" in done.stderr
    assert "the data of no data set were found" in done.stderr


WRONG: dict[str, tuple[str, int, str]] = {
    "command": ("compar", 2, "No such command 'compar'"),
    "option": (f"run {PROBLEM} --sed 1", 2, "No such option: --sed"),
    "workload": ("run mnist-mini/lenet-300", 2, "no model or problem 'lenet-300'.*did you mean 'lenet-300-100'"),
    "data set": ("run minst/lenet-300-100", 2, "no data set 'minst': did you mean 'mnist'"),
    "both": ("run minst/lenet", 2, "no data set 'minst': did you mean 'mnist'.*'lenet', of .*did you mean 'lenet-5'"),
    "out is a file": (f"compare {PROBLEM} --out taken", 2, "--out taken is a file: give a folder, which is made"),
    "out below a file": (f"run {PROBLEM} --out taken/run", 2, "--out taken/run would lie in .*taken, which is a file"),
    "page is a folder": ("report . --out .", 2, "--out . is a folder: give the name of a file, such as report.html"),
    "page for a folder": ("report . --out page", 2, "--out page does not end in .html or .md: .*page/report.html"),
    "no data": ("run mnist/lenet-300-100 --data-dir .", 1, "the files of mnist are not in"),
    "method": (f"run {PROBLEM} --method scgs", 2, "no method 'scgs': did you mean 'scsg'"),
    "methods": (f"compare {PROBLEM} --methods vcsg,scgs", 2, "no method 'scgs': did you mean 'scsg'"),
    "protocol": (f"compare {PROBLEM} --protocol papre", 2, "no protocol 'papre': did you mean 'paper'"),
    "set": (f"run {PROBLEM} --set esp=1", 2, "vcsg has no option 'esp': did you mean 'eps'"),
    "value": (f"run {PROBLEM} --set comparison=lemmma", 2, "comparison = 'lemmma': choose one of norm, lemma"),
    "range": (f"run {PROBLEM} --set rho=2", 2, "rho = 2: give a number strictly between 0 and 1"),
    "kind": (f"run {PROBLEM} --set B_min=many", 2, "B_min = 'many' .*give a whole number"),
    "config": (f"run {PROBLEM} --config none.toml", 2, "--config none.toml: No such file"),
    "budget": (f"run {PROBLEM} --budget 30", 2, "budget '30': write 30passes, 120s or 500000ifo"),
    "seeds": (f"compare {PROBLEM} --seeds x", 2, "seeds 'x': give how many, such as 3, or which"),
    "target": (f"compare {PROBLEM} --target tset-error=1", 2, "no metric 'tset-error'.*did you mean 'test-error'"),
    "percent": (
        f"compare {PROBLEM} --target test-error=30",
        2,
        "target 'test-error=30': an error is a share, .*0.05 for",
    ),
    "jobs": (f"compare {PROBLEM} --jobs 0", 2, "jobs = 0: give a whole number, at least 1"),
    "device": (f"run {PROBLEM} --device gpu", 2, "device 'gpu': give cpu, cuda"),
    "report": ("report nowhere", 1, "nowhere is not a folder: give one that `vcsg run` or `vcsg compare` wrote"),
    "no runs": ("report .", 1, "there is no run in"),
    "listed": ("list modles", 2, "'modles' is not one of 'workloads', 'methods'"),
    "fetch": ("data fetch minst", 2, "no data set 'minst': did you mean 'mnist'"),
    "reproduce": ("reproduce --data-set minst", 2, "the paper has no data set 'minst': did you mean 'mnist'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(case: str, tmp_path: Path) -> None:
    Path("taken").touch()
    words, status, message = WRONG[case]
    done = call(*words.split())
    assert done.exit_code == status, done.output
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.output
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(("vcsg: ", "Error: "))
    assert not list(tmp_path.glob("*-output"))


def test_another_study_in_the_folder_is_refused() -> None:
    words = ["compare", PROBLEM, "--methods", "vcsg,sgd", *TINY, "--no-report"]
    assert call(*words, "--seeds", "2").exit_code == 0
    done = call(*words, "--seeds", "1,0")
    assert done.exit_code == 2
    assert "study-output holds another study (seeds was 0, 1, now 1, 0)" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--device", "mps"], "device 'mps': give cpu, cuda, or cuda:1"),
        (["--threads", "100000"], "threads = 100000: give at most 1024"),
        (["--seed", str(2**64)], f"seed {2**64}: give a whole number, at least 0 and below 2^64"),
    ],
)
def test_a_run_that_no_machine_can_make_is_refused(words: list[str], told: str) -> None:
    done = call("run", PROBLEM, "--method", "sgd", "--budget", "2passes", "--out", "one", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr
    assert not Path("one").exists()


@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        ("1000000000000", "seeds '1000000000000': give at most 10,000, or which, such as 0,5,7"),
        (f"0,{2**64}", f"seed {2**64}: give a whole number, at least 0 and below 2^64"),
    ],
)
def test_seeds_that_cannot_be_are_refused_before_work(seeds: str, told: str) -> None:
    done = call("compare", PROBLEM, "--methods", "sgd", *TINY, "--seeds", seeds)
    assert done.exit_code == 2
    assert told in done.stderr


def test_a_problem_that_fits_no_memory_is_refused() -> None:
    for n in (10**11, 10**22):
        done = call("run", f"synthetic:n={n},d=50/least-squares", "--method", "sgd", "--budget", "2passes")
        assert done.exit_code == 2
        assert f"n = {n}, d = 50: {n:,} × 50 numbers take" in done.stderr


def test_a_folder_holds_one_kind_of_thing() -> None:
    """A study, a single run or an experiment: none writes into the folder of another."""
    assert call("run", PROBLEM, "--method", "sgd", *TINY, "--out", "one").exit_code == 0
    for command, what in ((["complexity"], "an experiment"), (["payoff"], "this")):
        done = call(*command, "--out", "one")
        assert done.exit_code == 2, done.output
        assert f"one holds a single run: give another folder for {what}" in done.stderr
    Path("experiment").mkdir()
    Path("experiment/design.json").write_text("{}")
    done = call("compare", PROBLEM, "--methods", "sgd", *TINY, "--out", "experiment")
    assert done.exit_code == 2
    assert "experiment holds an experiment: give another folder for a study" in done.stderr


def test_two_pages_in_a_folder_have_pictures_of_their_own() -> None:
    for name in ("a", "b"):
        assert call("run", PROBLEM, "--method", "sgd", *TINY, "--out", name).exit_code == 0
        assert call("report", name, "--out", f"pages/{name}.md").exit_code == 0
    for name in ("a", "b"):
        page = Path(f"pages/{name}.md").read_text(encoding="utf-8")
        shown = re.findall(r"\]\(([^)]+\.png)\)", page)
        assert shown
        assert all(place.startswith(f"{name}-figures/") and Path("pages", place).is_file() for place in shown)


def test_records_that_are_damaged_are_named() -> None:
    assert call("run", PROBLEM, "--method", "svrg", "--budget", "4passes", "--out", "one").exit_code == 0
    lines = Path("one/evaluations.jsonl").read_text(encoding="utf-8").splitlines()
    for name, text, told in (
        ("evaluations", re.sub(r'"train_loss": [^,}]+', '"train_loss": "abc"', lines[0]), "train_loss is no number"),
        ("epochs", '{"epoch": 1}', "it has no passes"),
        ("evaluations", "[1, 2]", "it is no record by names"),
    ):
        path = Path(f"one/{name}.jsonl")
        before = path.read_text(encoding="utf-8")
        path.write_text(text + "\n" + before, encoding="utf-8")
        done = call("report", "one")
        path.write_text(before, encoding="utf-8")
        assert done.exit_code == 2
        assert f"one/{name}.jsonl, line 1:" in done.stderr
        assert told in done.stderr


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_closed_stream_loses_nothing_else(closed: str, tmp_path: Path) -> None:
    """As stdout is by `| head`: what is to be written is written, and the other stream is as ever."""
    program = [sys.executable, "-m", "vcsg", "compare", PROBLEM, "--methods", "sgd,gd", "--budget", "2passes"]
    with (tmp_path / "other").open("wb") as other:
        streams: dict[str, Any] = {"stdout": other, "stderr": other, closed: subprocess.PIPE}
        with subprocess.Popen([*program, "--seeds", "1", "--out", str(tmp_path / "out")], **streams) as told:
            getattr(told, closed).close()
            assert told.wait(120) == 0
    shown = (tmp_path / "other").read_text(encoding="utf-8")
    assert ("least-squares (n = 60)" if closed == "stderr" else "run 1 of 2") in shown
    assert (tmp_path / "out" / "report.html").is_file()
