import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from native import processes

IDLE = "import signal, sys; print(flush=True); signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause(); signal.pause()"


@contextmanager
def marked(run: Path, code: str = IDLE) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that carries the mark of a stack; it has printed a line once it is set up."""
    argv = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(argv, env={processes.MARK: str(run)}, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def others(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A program of the stack in a folder within, and one whose folder only begins alike."""
    with ExitStack() as stack:
        yield [stack.enter_context(marked(run)) for run in (tmp_path / "run" / "demo", tmp_path / "run2")]


def test_only_the_stack_of_this_folder_is_ended(tmp_path: Path, others: list[subprocess.Popen[bytes]]) -> None:
    run = tmp_path / "run"
    with marked(run) as first, marked(run) as second:
        assert sorted(processes.members(run)) == sorted([first.pid, second.pid])
        processes.end(run, patience=10)
        assert (first.wait(10), second.wait(10)) == (-signal.SIGTERM, -signal.SIGTERM)
    assert [other.poll() for other in others] == [None, None]


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    with marked(tmp_path, DEAF) as process:
        processes.end(tmp_path, patience=0.3)
        assert process.wait(10) == -signal.SIGKILL


def test_waiting_ends_at_the_deadline_and_ends_nothing(tmp_path: Path) -> None:
    with marked(tmp_path) as process:
        assert not processes.await_gone(tmp_path, 0.1)
        assert process.poll() is None
        process.terminate()
        process.wait(10)
        assert processes.await_gone(tmp_path, 10)


def test_a_process_that_is_gone_has_neither_name_nor_environment() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as process:
        process.wait(10)
    assert processes.name(process.pid) == ""
    assert processes.environment(process.pid) == {}
