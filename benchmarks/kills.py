"""Runs that are killed by SIGKILL, taken up again, and compared bit by bit with those that were never interrupted.

    python benchmarks/kills.py --kills 200

A run is `vcsg run … --resume` (and for "fit" a call of `vcsg.fit`) in a process of its own, on 256 images of
mnist-mini, with a network that has BatchNorm and dropout. It is killed from outside at a random moment, or kills itself
at a chosen one: in an anchor, in an inner step, in an evaluation, in the middle of a line or of a checkpoint, between
the steps that write one. It is taken up again and killed again, three times in a chain, and then left to its end.
Compared are the final weights and all records, without times; and nothing else may be left in the folder.

Processes are forked off one that has imported torch already, which takes seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKLOAD = "mnist-mini-256/small"
METHODS: dict[str, tuple[str, ...]] = {
    "vcsg": ("b_min=8", "L=20"),
    "svrg": ("b=8", "L=20"),
    "spider": ("b=8", "L=20"),
    "saga": ("b=8", "L=20"),
    "sgd-momentum": ("b=8",),
    "adamw": ("b=8",),
}
PASSES = 10
CADENCE = 0.02
"""Seconds between two checkpoints."""
CHAIN = 3
"""Kills in a row before a run is left to its end."""
ANCHORLESS = ("sgd-momentum", "adamw")


# --- the process that is killed


def build_workload(data_dir: object, device: object) -> Any:
    from torch import nn
    from torch.nn.functional import cross_entropy

    from vcsg.workloads import Workload, mnist_mini

    data = mnist_mini()

    def make_model() -> nn.Module:
        inner = (nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 10))
        return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 12), *inner)

    def objective(model: nn.Module, batch: Any) -> Any:
        return cross_entropy(model(batch[0]), batch[1])

    def measure(model: nn.Module, batch: Any) -> dict[str, float]:
        return {"test_loss": objective(model, batch).item()}

    train, test = ((x[:count].clone(), y[:count].clone()) for (x, y), count in ((data.train, 256), (data.test, 64)))
    return Workload(WORKLOAD, train, test, make_model, objective, measure, None, None)


def fit(folder: str) -> None:
    """`vcsg.fit` into a folder, with what came of it in result.pt."""
    import torch

    import vcsg
    from vcsg.study.running.miniature import initial_model, load_workload

    workload = load_workload(WORKLOAD, None, "cpu")
    result = vcsg.fit(
        initial_model(workload, 0),
        None,
        workload.train,
        "vcsg",
        objective=workload.objective,
        test=workload.test,
        b_min=8,
        passes=PASSES,
        every=0.5,
        progress=False,
        checkpoint=folder,
        checkpoint_seconds=CADENCE,
        resume=True,
    )
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]
    content = {
        "weights": result.model.state_dict(),
        "history": repr(rows),
        "records": repr(result.records),
        "ifo": result.ifo,
        "stopped": result.stopped,
    }
    torch.save(content, Path(folder) / "result.pt")


@dataclass
class Countdown:
    """Sends the process a signal at the k-th call of `due`."""

    left: int
    number: int

    def due(self) -> bool:
        """Whether this is the call; what is to be done before the signal the caller does."""
        self.left -= 1
        return self.left == 0

    def strike(self) -> None:
        os.kill(os.getpid(), self.number)


Install = Callable[[Countdown], None]


def in_phase(kind: str) -> Install:
    """In the closure of a step."""

    def install(countdown: Countdown) -> None:
        from vcsg.training.loop import Loop

        plain = Loop._step

        def step(self: Loop, batch: Any) -> float:
            if self.optimizer.phase.kind != kind or not countdown.due():
                return plain(self, batch)
            objective = self._objective

            def struck(batch: Any) -> Any:
                countdown.strike()
                self._objective = objective
                return objective(batch)

            self._objective = struck
            return plain(self, batch)

        Loop._step = step  # type: ignore[method-assign]

    return install


def in_evaluation(countdown: Countdown) -> None:
    from vcsg.study.running import runs
    from vcsg.training import evaluation, fitting

    def means(*arguments: Any) -> Any:
        if countdown.due():
            countdown.strike()
        return evaluation.means(*arguments)

    for module in (runs, fitting):
        vars(module)["means"] = means


def in_checkpoint(countdown: Countdown) -> None:
    """When half of it was written."""
    from vcsg.training import checkpoints

    plain = checkpoints.write

    def write(path: Path, *parts: Any) -> None:
        if countdown.due():
            plain(path, parts[0], parts[1][: len(parts[1]) // 2])
            countdown.strike()
        plain(path, *parts)

    checkpoints.write = write


def at_rename(name: str, after: bool) -> Install:
    """Of a file whose name begins so, before or after it."""

    def install(countdown: Countdown) -> None:
        plain = os.replace

        def replace(source: Any, target: Any) -> None:
            hit = Path(target).name.startswith(name) and countdown.due()
            if hit and not after:
                countdown.strike()
            plain(source, target)
            if hit and after:
                countdown.strike()

        vars(os)["replace"] = replace

    return install


def in_weights(countdown: Countdown) -> None:
    """When safetensors has begun a file of its own beside that which it was asked for."""
    import safetensors.torch

    plain = safetensors.torch.save_file

    def save_file(tensors: Any, filename: str, metadata: Any = None) -> None:
        if countdown.due():
            (Path(filename).parent / ".tmpAbCdEf").write_bytes(b"a part")
            countdown.strike()
        plain(tensors, filename, metadata)

    vars(safetensors.torch)["save_file"] = save_file


def at_line(share: float) -> Install:
    """When this share of a line was written."""

    def install(countdown: Countdown) -> None:
        from vcsg import files
        from vcsg.study.running import writing

        def append(path: Any, line: bytes) -> None:
            if countdown.due():
                files.append(path, line[: int(share * len(line))])
                countdown.strike()
            files.append(path, line)

        vars(writing)["append"] = append

    return install


POINTS: dict[str, tuple[Install, int]] = {
    "anchor": (in_phase("anchor"), 6),
    "inner phase": (in_phase("inner"), 200),
    "evaluation": (in_evaluation, 20),
    "half a line": (at_line(0.5), 15),
    "after a line": (at_line(1.0), 15),
    "half a checkpoint": (in_checkpoint, 6),
    "before its rename": (at_rename("checkpoint-", False), 6),
    "after its rename": (at_rename("checkpoint-", True), 6),
    "before run.json": (at_rename("run.json", False), 1),
    "half the weights": (in_weights, 1),
    "final weights": (at_rename("weights", False), 1),
    "after the end": (at_rename("run.json", True), 2),
}
"""Where a process can kill itself, and up to which call of that place."""
OF_FIT = ("anchor", "inner phase", "evaluation", "half a checkpoint", "before its rename", "after its rename")
"""Those that a call of fit comes to."""


def child(task: dict[str, Any]) -> None:
    """A run, in a process that was forked off. It does not return."""
    log = os.open(task["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    status = 1
    try:
        if task["point"]:
            POINTS[task["point"]][0](Countdown(task["count"], task["signal"]))
        if task["limit"]:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (task["limit"], task["limit"]))
        if task["words"][0] == "fit":
            fit(task["words"][1])
            status = 0
        else:
            from vcsg.cli import app

            app(task["words"], prog_name="vcsg")
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    """Fork off what is asked for on stdin, line by line, and tell on stdout how it ended."""
    import torch
    import torch._dynamo  # an optimizer imports it when it is made

    import vcsg.study.compare  # noqa: F401
    from vcsg.study.running.miniature import load_workload, warm_up
    from vcsg.workloads import register_workload

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    register_workload(WORKLOAD, 256, 742, build_workload)
    load_workload(WORKLOAD, None, "cpu")
    for kind in METHODS:
        warm_up(WORKLOAD, None, "cpu", kind, None)  # which a run would do first, and meet there what is to be met in it
    for line in sys.stdin:
        task = json.loads(line)
        begun = time.monotonic()
        pid = os.fork()
        if not pid:
            child(task)
        if task["after"] is not None:
            time.sleep(task["after"])
            os.kill(pid, task["signal"])
        _, code = os.waitpid(pid, 0)
        answer = {"status": os.waitstatus_to_exitcode(code), "seconds": time.monotonic() - begun}
        print(json.dumps(answer), flush=True)


# --- the process that kills


class Server:
    """The process that has imported torch, and forks runs."""

    def __init__(self) -> None:
        source = str(Path(__file__).parent.parent / "src")
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        command = [sys.executable, __file__, "--serve"]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(
        self,
        words: list[str],
        log: Path,
        *,
        point: str = "",
        count: int = 0,
        after: float | None = None,
        number: int = signal.SIGKILL,
        limit: int = 0,
    ) -> tuple[int, float]:
        """The exit status of a run, negative where it was killed, and its seconds."""
        task = {"words": words, "log": str(log), "point": point, "count": count, "after": after}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        more = {"signal": number, "limit": limit}
        self._process.stdin.write(json.dumps(task | more) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["status"], answer["seconds"]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def words(kind: str, folder: Path) -> list[str]:
    if kind == "fit":
        return ["fit", str(folder)]
    options = [word for option in METHODS[kind] for word in ("--set", option)]
    limits = ["--budget", f"{PASSES}passes", "--every", "0.5", "--checkpoint-seconds", str(CADENCE)]
    return ["run", WORKLOAD, "--method", kind, *options, *limits, "--out", str(folder), "--resume"]


def content(folder: Path) -> dict[str, Any]:
    """All that a run left, without times."""
    found: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        match path.name:
            case "evaluations.jsonl":
                rows = map(json.loads, path.read_text().splitlines())
                found[path.name] = [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
            case "run.json":
                head = json.loads(path.read_text())
                del head["started"]
                head["notes"].get("L", {}).pop("seconds", None)
                found[path.name] = head
            case ".lock":
                pass
            case name if name.startswith("checkpoint-"):  # how many there were depends on the time; fit keeps two
                found["checkpoints"] = found.get("checkpoints", 0) + 1
            case _:
                found[path.name] = path.read_bytes()
    return found


@dataclass
class Tally:
    """What became of the kills of one kind of run."""

    kills: Counter[str] = field(default_factory=Counter)
    """By the place."""
    finished: int = 0
    """Runs that came to their end after kills."""
    wrong: list[str] = field(default_factory=list)
    """What was not as it should be."""


def campaign(server: Server, kind: str, kills: int, folder: Path, seed: int = 0) -> Tally:
    """Kill runs of one kind so many times, in chains, each of which ends with a comparison."""
    rng, tally = random.Random(f"{kind} {seed}"), Tally()
    log = folder / f"{kind}.log"
    whole = folder / f"{kind}-whole"
    status, seconds = server.run(words(kind, whole), log)
    if status:
        raise RuntimeError(f"{kind} ended with status {status}: {log.read_text()[-2000:]}")
    expected = content(whole)
    places = list(OF_FIT) if kind == "fit" else [p for p in POINTS if p != "anchor" or kind not in ANCHORLESS]
    rng.shuffle(places)
    while tally.kills.total() < kills:
        part = folder / f"{kind}-{tally.finished}"
        chain = min(CHAIN, kills - tally.kills.total())
        while chain:
            # A place every other time; the others are at random moments.
            place = places.pop() if places and rng.random() < 0.5 else ""
            how: dict[str, Any] = {"point": place, "count": rng.randint(1, POINTS[place][1])} if place else {}
            status, took = server.run(words(kind, part), log, **(how or {"after": rng.uniform(0, seconds)}))
            if status == -signal.SIGKILL:
                tally.kills[place or "at random"] += 1
                chain -= 1
            elif status == 0:
                seconds = min(seconds, took)  # it came to its end first
                break
            else:
                tally.wrong.append(f"{kind}: status {status} in {part.name}: {log.read_text()[-2000:]}")
                return tally
        status, _ = server.run(words(kind, part), log)
        tally.finished += 1
        found = content(part)
        if status:
            tally.wrong.append(f"{kind}: status {status} at the end of {part.name}: {log.read_text()[-2000:]}")
        elif found != expected:
            different = [name for name in expected | found if expected.get(name) != found.get(name)]
            tally.wrong.append(f"{kind}: {', '.join(different)} of {part.name} differ")
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    kinds = [*METHODS, "fit"]
    places: Counter[str] = Counter()
    wrong: list[str] = []
    begun = time.monotonic()
    server = Server()
    print(f"{'run':<14}{'kills':>7}{'resumed to the end':>20}{'equal':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for i, kind in enumerate(kinds):
            share = given.kills * (i + 1) // len(kinds) - given.kills * i // len(kinds)
            tally = campaign(server, kind, share, Path(folder), given.seed)
            equal = tally.finished - len(tally.wrong)
            print(f"{kind:<14}{tally.kills.total():>7}{tally.finished:>20}{equal:>7}", flush=True)
            places += tally.kills
            wrong += tally.wrong
    server.close()
    print("\nkilled, by place: " + ", ".join(f"{place} {count}" for place, count in places.most_common()))
    print(f"{places.total()} kills in {time.monotonic() - begun:.0f} s; {len(wrong)} wrong", *wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
