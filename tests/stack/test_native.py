"""The stack without Docker as its user meets it: `python -m native`, real programs, free ports, a folder of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from native import folder, processes, tools, web
from native.programs import DEMO_PORT, STACK, Program, ports
from native.settings import read
from native.stack import up as start
from tests.environ import inherited
from tests.sockets import reply, serving
from tests.waiting import free_ports, wait_for

ROOT = Path(__file__).parents[2]
ENGINE = """\
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 300.0
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 200.0
"""
SECRET = "s3cret-key"
NAMES = {"exporter", "probe", "alertmanager", "prometheus"}


class Stack:
    """A folder and ports; `native` runs a command on them."""

    def __init__(self, run: Path, **environ: str) -> None:
        self.run = run
        names = [port.setting for port in (*ports(STACK), DEMO_PORT)]
        self.environ = dict(zip(names, free_ports(len(names)), strict=True)) | environ | {"APC_RUN_DIR": str(run)}

    def native(self, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "native", *argv],
            cwd=ROOT,
            env=inherited() | self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def status(self) -> dict[str, list[str]]:
        """Return the table's rows by program."""
        programs, _, _ = self.native("status").stdout.partition("\n\n")
        rows = [line.split() for line in programs.splitlines()]
        return {row[0]: row[1:] for row in rows if row[0] != "PROGRAM"}

    def pid(self, name: str) -> int:
        return int(self.status()[name][1])

    def query(self, expression: str) -> list[str]:
        """Return the values of an instant query."""
        url = f"http://127.0.0.1:{self.environ['PROMETHEUS_PORT']}/api/v1/query?query={quote(expression)}"
        return [series["value"][1] for series in json.loads(web.get(url).text)["data"]["result"]]


@contextmanager
def ended(stack: Stack) -> Iterator[Stack]:
    """Leave nothing behind, whatever the test found."""
    try:
        yield stack
    finally:
        stack.native("down")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack that is up, beside an engine that answers; its key is in the file of settings."""
    folder = tmp_path_factory.mktemp("native")
    (folder / "env").write_text(f"VLLM_API_KEY={SECRET}\nAPC_SCRAPE_INTERVAL=30s\n")
    own = {"APC_ENV_FILE": str(folder / "env"), "APC_SCRAPE_INTERVAL": "1s"}
    with serving(reply(ENGINE)) as engine:
        stack = Stack(folder / "run 'it' \"here\"", VLLM_URL=engine.url, **own)
        with ended(stack):
            up = stack.native("up")
            assert up.returncode == 0, up.stdout + up.stderr
            yield stack


def test_prometheus_scrapes_the_exporter_which_asks_the_engine(stack: Stack) -> None:
    wait_for(lambda: stack.query('apc_engine_up{job="apc-exporter"}') == ["1"])
    assert stack.query('apc_hit_tokens_total{tier="device"}') == ["200"]
    for job in ("prometheus", "alertmanager", "apc-probe"):
        wait_for(lambda job=job: stack.query(f'up{{job="{job}"}}') == ["1"])  # type: ignore[misc]


def test_status_tells_what_runs_and_where(stack: Stack) -> None:
    status = stack.native("status")
    assert status.returncode == 0
    table = stack.status()
    assert {name: row[0] for name, row in table.items()} == dict.fromkeys(NAMES, "running")
    assert table["exporter"][-1] == f"http://127.0.0.1:{stack.environ['APC_EXPORTER_PORT']}/metrics"


def test_status_ends_with_what_prometheus_says_of_each_target(stack: Stack) -> None:
    wait_for(lambda: stack.query("target:apc_verdict:current"), 60)
    _, _, told = stack.native("status").stdout.partition("\n\n")
    head, row = told.splitlines()
    assert head.split()[:2] == ["TARGET", "VERDICT"]
    assert row.split()[0] == "vllm"
    assert "no traffic" not in row  # which a young window does not tell

    [found] = json.loads(stack.native("status", "--json").stdout)
    assert {program["name"] for program in found["programs"]} == NAMES
    [target] = found["targets"]
    assert (target["target"], target["up"], target["hit_ratio"], target["cached_ttft"]) == ("vllm", True, None, None)
    assert target["verdicts"]
    assert (len(target["last_hour"]), found["error"]) == (30, None)


def test_status_without_an_answer_of_prometheus_says_so_and_exits_by_the_programs(stack: Stack) -> None:
    pid = stack.pid("prometheus")
    os.kill(pid, signal.SIGSTOP)
    try:
        status = stack.native("status")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert status.returncode == 0
    assert (
        f"Targets: Prometheus at http://127.0.0.1:{stack.environ['PROMETHEUS_PORT']}/ does not answer" in status.stdout
    )


def test_the_doctor_asks_the_engine_of_the_probe_that_runs_unless_the_call_names_another(stack: Stack) -> None:
    for named, asked in ("", stack.environ["VLLM_URL"]), ("http://127.0.0.1:1", "http://127.0.0.1:1"):
        doctor = stack.native("doctor", VLLM_URL=named)
        assert doctor.returncode == 1
        assert doctor.stdout.startswith(f"vllm: {asked}\n")


def test_all_listen_on_loopback_only(stack: Stack) -> None:
    tables = [(processes.PROC / "net" / name).read_text() for name in ("tcp", "tcp6")]
    for setting in ("PROMETHEUS_PORT", "APC_EXPORTER_PORT", "APC_PROBE_PORT", "ALERTMANAGER_PORT"):
        port = f":{int(stack.environ[setting]):04X}"
        rows = [row for table in tables for row in map(str.split, table.splitlines()) if row[3] == "0A"]
        assert {row[1] for row in rows if row[1].endswith(port)} == {f"0100007F{port}"}


def test_no_key_is_in_a_file_or_an_argv(stack: Stack) -> None:
    texts = [path.read_bytes() for path in stack.run.rglob("*") if path.is_file() and "data" not in path.parts]
    argvs = [(processes.PROC / str(pid) / "cmdline").read_bytes() for pid in processes.members(stack.run)]
    assert len(argvs) == 1 + len(NAMES)  # and supervisord
    assert not [text for text in texts + argvs if SECRET.encode() in text]
    assert processes.environment(stack.pid("exporter"))["VLLM_API_KEY"] == SECRET


def test_a_second_up_says_so_and_changes_nothing(stack: Stack) -> None:
    before = stack.status()
    again = stack.native("up")
    assert again.returncode == 0
    assert again.stdout.count("ran already") == len(NAMES)
    assert {name: row[1] for name, row in stack.status().items()} == {name: row[1] for name, row in before.items()}


def test_a_crashed_program_is_started_again(stack: Stack) -> None:
    pid = stack.pid("exporter")
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: (row := stack.status()["exporter"])[0] == "running" and row[1] != str(pid))
    wait_for(lambda: web.is_healthy(f"http://127.0.0.1:{stack.environ['APC_EXPORTER_PORT']}/-/healthy"))


def test_only_what_changed_is_restarted(stack: Stack) -> None:
    before = {name: row[1] for name, row in stack.status().items()}
    up = stack.native("up", APC_SCRAPE_INTERVAL="2s")
    assert up.returncode == 0
    assert "prometheus: its settings changed" in up.stdout
    after = {name: row[1] for name, row in stack.status().items()}
    assert {name for name in after if after[name] != before[name]} == {"prometheus"}


def test_a_key_that_changed_reaches_the_programs_and_only_its_name_is_told(stack: Stack) -> None:
    up = stack.native("up", VLLM_API_KEY="another-key")
    assert up.returncode == 0
    assert "everything: VLLM_API_KEY changed" in up.stdout
    assert "another-key" not in up.stdout + up.stderr
    assert processes.environment(stack.pid("exporter"))["VLLM_API_KEY"] == "another-key"


def test_a_taken_port_is_told_before_anything_starts_and_two_stacks_can_stand_side_by_side(
    stack: Stack, tmp_path: Path
) -> None:
    with ended(Stack(tmp_path / "run", VLLM_URL="http://127.0.0.1:1")) as other:
        port = stack.environ["PROMETHEUS_PORT"]
        up = other.native("up", PROMETHEUS_PORT=port)
        assert up.returncode == 2
        told = f"PROMETHEUS_PORT: port {port} is taken by prometheus (pid {stack.pid('prometheus')}), of the stack in"
        assert told in up.stderr
        assert processes.members(other.run) == []

        up = other.native("up")
        assert up.returncode == 0, up.stderr
        assert "http://127.0.0.1:1 does not answer yet: refused; apc_engine_up is 0 until it does" in up.stdout
        assert other.native("down").returncode == 0
        assert stack.native("status").returncode == 0


def test_down_leaves_no_process_even_when_supervisord_was_killed(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)  # too long a path for a socket
    with ended(Stack(deep)) as stack:
        up = stack.native("up")
        assert up.returncode == 0, up.stderr
        assert str(folder.socket(deep)) in up.stdout
        assert set(stack.status()) == NAMES
        os.kill(int((stack.run / "supervisord.pid").read_text()), signal.SIGKILL)
        wait_for(lambda: len(processes.members(stack.run)) == len(NAMES))
        status = stack.native("status")
        assert status.returncode == 3
        assert "`make down` ends them" in status.stdout
        assert stack.native("clean", "--yes").returncode == 3

        assert stack.native("down").returncode == 0
        assert processes.members(stack.run) == []
        again = stack.native("down")
        assert (again.returncode, again.stdout.strip()) == (0, "Nothing was running.")
        assert stack.native("status").returncode == 3

        assert stack.native("clean").returncode == 2
        assert stack.native("clean", "--yes").returncode == 0
        assert not stack.run.exists()


def test_wrong_settings_are_told_by_name_and_nothing_starts(tmp_path: Path) -> None:
    with ended(Stack(tmp_path / "run")) as stack:
        for environ, named in ({"PROMETHEUS_PORT": "x"}, "PROMETHEUS_PORT"), ({"VLLM_URL": "gpu"}, "VLLM_URL"):
            up = stack.native("up", **environ)
            assert (up.returncode, processes.members(stack.run)) == (2, [])
            assert named in up.stderr


def test_a_program_that_ends_by_itself_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with ended(Stack(tmp_path / "run")) as stack:
        data = stack.run / "prometheus" / "data"
        data.mkdir(parents=True)
        (data / "wal").touch()  # where Prometheus wants a folder
        up = stack.native("up")
        assert up.returncode == 3
        assert "prometheus ends by itself" in up.stderr
        assert str(data) in up.stderr
        assert stack.status()["exporter"][0] == "running"


def test_what_is_not_required_is_left_out_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    idle, failing = ("{python}", "-c", "import signal; signal.pause()"), ("{python}", "-c", "raise SystemExit(1)")
    programs = (
        Program(name="needed", argv=idle),
        Program(name="extra", argv=failing, required=False),
        Program(name="absent", argv=(), tool="no-such-tool", required=False),
    )
    monkeypatch.setitem(tools.TOOLS, "no-such-tool", tools.Tool(("no-such-tool",)))
    with ended(Stack(tmp_path / "run")) as stack:
        services = start(read(stack.environ, ()), programs)
        assert [service.name for service in services] == ["needed"]
        assert stack.status()["needed"][0] == "running"
    told = capfd.readouterr().out
    assert "no-such-tool not found: install what has them" in told
    assert "The rest works without extra" in told


def test_the_demo_ends_with_the_hit_rate_of_prometheus_and_down_ends_the_demo(tmp_path: Path) -> None:
    with ended(Stack(tmp_path / "run", VLLM_URL="http://elsewhere", APC_SCRAPE_INTERVAL="1s")) as stack:
        demo = stack.native("demo")
        assert demo.returncode == 0, demo.stdout + demo.stderr
        told = dict(line.split(maxsplit=1) for line in demo.stdout.splitlines() if line.startswith("  "))
        lines = [line.strip() for line in demo.stdout.splitlines()]
        assert told["Prometheus"] == f"http://127.0.0.1:{stack.environ['PROMETHEUS_PORT']}/"
        [rate] = [line for line in lines if line.startswith("Hit rate")]
        assert 50 < float(rate.split()[2]) <= 100
        assert set(stack.status()) == NAMES | {"engine", "traffic"}
        assert stack.native("down").returncode == 0
        assert processes.members(folder.demo(stack.run)) == []
