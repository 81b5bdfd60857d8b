"""The stack in Docker as its user meets it: `python -m host`, a real engine and Compose (`.ci/docker` brings them)."""

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from host import docker
from host.services import PROFILES, SERVICES
from native import envfile, processes, web
from native.settings import ROOT
from tests.host.docker_stack import Stack, ask
from tests.sockets import free_port, reply
from tests.stack.receiver import Receiver
from tests.stack.test_native import ENGINE
from tests.waiting import wait_for

KEYS = {
    "VLLM_API_KEY": "s3cret-engine-key",
    "VLLM_METRICS_API_KEY": "s3cret-metrics-key",
    "GF_SECURITY_ADMIN_PASSWORD": "s3cret-grafana-password",
}
WITHOUT = "grafana"  # no image stands in for it
HOOK_TOKEN = "s3cret-hook-token"
HIT_RATE = 'sum(apc_hit_tokens_total{tier="device"}) / (sum(apc_queried_tokens_total{tier="device"}) > 0)'


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """A webhook where containers reach this machine."""
    receiver = Receiver(docker.gateway())
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    """The demo's stack, up, with keys and a webhook set."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "hook").write_text(f"{receiver.url('docker')}?token={HOOK_TOKEN}")
    hook = {"APC_WEBHOOK_URL_FILE": str(folder / "hook")}
    stack = Stack(folder, "demo", COMPOSE_PROFILES="demo", APC_WITHOUT=WITHOUT, **KEYS, **hook)
    try:
        stack.up()
        yield stack
    finally:
        stack.host("down")
        stack.host("clean", "--yes")


@pytest.mark.parametrize("profile", ["", *PROFILES, "*"])
def test_compose_finds_nothing_to_say_about_any_profile(profile: str) -> None:
    config = ask("docker", "compose", "--env-file", "/dev/null", "config", COMPOSE_PROFILES=profile)
    assert config.returncode == 0
    assert config.stderr == ""
    for service in SERVICES:
        assert (f"\n  {service.name}:\n" in config.stdout) == (service.profile in {"", profile} or profile == "*")


def test_the_settings_file_is_read_as_compose_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text(
        "VLLM_MODEL='a$b # c'\nAPC_TARGET_NAME=two words # comment\nVLLM_URL=\"http://x y\"\nAPC_TARGETS=a#b\n"
    )
    shown = ask("docker", "compose", "--env-file", str(path), "config", "--format", "json")
    environment = json.loads(shown.stdout)["services"]["exporter"]["environment"]
    for name, value in envfile.read(path).items():
        assert environment[name].replace("$$", "$") == value


def test_all_is_healthy_and_prometheus_has_the_hit_rate(stack: Stack) -> None:
    wait_for(lambda: all(c.health in {"healthy", ""} for c in stack.containers().values()), 60)
    assert {c.state for c in stack.containers().values()} == {"running"}
    wait_for(lambda: (stack.query(HIT_RATE) or [0.0])[0] > 0.5, 60)
    status = stack.host("status")
    assert status.returncode == 0
    assert f"http://127.0.0.1:{stack.environ['PROMETHEUS_PORT']}/" in status.stdout
    for name in stack.containers():
        assert name in status.stdout
    assert "demo.engine: qwen2.5-7b-instruct" in stack.host("logs", "demo-engine").stdout


def test_every_job_of_prometheus_is_scraped(stack: Stack) -> None:
    jobs = re.findall(r"job_name: (\S+)", (ROOT / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    for job in jobs:
        wait_for(lambda job=job: stack.query(f'up{{job="{job}"}}') == [1.0], 30)  # type: ignore[misc]


def test_all_is_published_on_loopback_only(stack: Stack) -> None:
    ids = [container.name for container in stack.containers().values()]
    for entry in json.loads(ask("docker", "inspect", *ids).stdout):
        bindings = [binding for found in entry["NetworkSettings"]["Ports"].values() for binding in found or ()]
        assert {binding["HostIp"] for binding in bindings} <= {"127.0.0.1"}


def test_containers_may_do_little(stack: Stack) -> None:
    ids = [container.name for container in stack.containers().values()]
    for entry in json.loads(ask("docker", "inspect", *ids).stdout):
        assert entry["HostConfig"]["ReadonlyRootfs"]
        assert entry["HostConfig"]["CapDrop"] == ["ALL"]
        assert entry["HostConfig"]["Memory"] > 0
        assert entry["Config"]["User"] not in {"", "0", "root"}
        status = (processes.PROC / str(entry["State"]["Pid"]) / "status").read_text()
        assert re.search(r"CapEff:\s+0+\n", status)
        assert "NoNewPrivs:\t1" in status


def test_the_image_has_what_the_lock_names_and_no_tool_to_build_or_install(stack: Stack) -> None:
    exporter = stack.containers()["exporter"].name
    listing = "from importlib.metadata import distributions as d; print(*(f'{x.name}=={x.version}' for x in d()))"
    found = ask("docker", "exec", exporter, "python3", "-c", listing).stdout.lower().replace("-", "_").split()
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8").lower().replace("-", "_").split()
    assert "prometheus_client" in " ".join(found)
    assert set(found) <= set(lock)
    for tool in ("gcc", "cc", "make", "pip"):
        assert ask("docker", "exec", exporter, "sh", "-c", f"command -v {tool}").returncode
    assert ask("docker", "exec", exporter, "touch", "/app/x").returncode


def test_keys_reach_their_programs_and_nothing_else_shows_them(stack: Stack) -> None:
    containers = stack.containers()
    pids = {
        name: int(ask("docker", "inspect", "-f", "{{.State.Pid}}", c.name).stdout) for name, c in containers.items()
    }
    assert processes.environment(pids["probe"])["VLLM_API_KEY"] == KEYS["VLLM_API_KEY"]
    assert processes.environment(pids["exporter"])["VLLM_METRICS_API_KEY"] == KEYS["VLLM_METRICS_API_KEY"]
    assert "VLLM_API_KEY" not in processes.environment(pids["exporter"])
    for name in ("prometheus", "demo-traffic"):
        assert not {*KEYS.values()} & {*processes.environment(pids[name]).values()}
    shown = [ask("docker", "inspect", c.name).stdout + docker.log(c.name, 1000) for c in containers.values()]
    shown += [web.get(stack.url(port, "/metrics")).text for port in ("APC_EXPORTER_PORT", "APC_PROBE_PORT")]
    shown += [web.get(stack.url("PROMETHEUS_PORT", f"/api/v1/status/{page}")).text for page in ("config", "flags")]
    shown += [web.get(stack.url("ALERTMANAGER_PORT", "/api/v2/status")).text]
    shown += [ask("docker", "image", "history", "--no-trunc", "apc-observability:0.1.0").stdout]
    shown += [ask("ps", "-eo", "args", "ww").stdout, stack.host("up").stdout, stack.host("logs").stdout]
    assert all(shown)
    assert not [key for key in (*KEYS.values(), HOOK_TOKEN) for text in shown if key in text]


def test_the_doctor_runs_where_the_probe_runs(stack: Stack) -> None:
    doctor = stack.host("doctor")
    assert f"From within {stack.containers()['probe'].name}:" in doctor.stderr
    assert doctor.stdout.startswith("vllm: http://engine:9000\n")
    assert doctor.returncode in {0, 1}


def test_plain_compose_restarts_a_container_as_it_is(stack: Stack) -> None:
    before = stack.containers()["exporter"]
    assert ask("docker", "compose", "restart", "exporter", COMPOSE_PROJECT_NAME=stack.project).returncode == 0
    after = stack.containers()["exporter"]
    assert after.started > before.started
    assert after.name == before.name
    wait_for(lambda: web.is_healthy(stack.url("APC_EXPORTER_PORT", "/-/healthy")))


def test_a_second_up_changes_nothing_and_a_new_key_restarts_who_reads_it(stack: Stack) -> None:
    stack.up()
    before = {name: container.started for name, container in stack.containers().items()}
    stack.up()
    assert {name: container.started for name, container in stack.containers().items()} == before
    stack.up(VLLM_API_KEY="s3cret-second-key")
    after = {name: container.started for name, container in stack.containers().items()}
    assert {name for name in after if after[name] != before[name]} == {"exporter", "probe"}


def test_what_the_settings_no_longer_name_is_stopped(stack: Stack) -> None:
    told = stack.up(COMPOSE_PROFILES="", APC_WITHOUT=f"{WITHOUT},probe", VLLM_URL="http://host.docker.internal:1")
    assert "stop demo-engine, demo-traffic, probe" in told
    assert not {"demo-engine", "demo-traffic", "probe"} & set(stack.containers())
    stack.up()
    assert {"demo-engine", "demo-traffic", "probe"} <= set(stack.containers())


def test_each_container_comes_back_when_its_process_is_killed(stack: Stack) -> None:
    for name, container in stack.containers().items():
        pid = int(ask("docker", "inspect", "-f", "{{.State.Pid}}", container.name).stdout)
        os.kill(pid, signal.SIGKILL)
        wait_for(
            lambda name=name, restarts=container.restarts: (  # type: ignore[misc]
                (now := stack.containers()[name]).restarts > restarts and now.state == "running"
            )
        )
    wait_for(lambda: all(c.health in {"healthy", ""} for c in stack.containers().values()), 90)
    wait_for(lambda: stack.query("sum(apc_engine_up)") == [1.0], 30)


def test_an_alert_is_delivered(stack: Stack, receiver: Receiver) -> None:
    """At the rules' own times: the exporter is missed for two minutes first."""

    def told(status: str) -> bool:
        return (status, "ApcExporterDown") in {(notice.status, notice.alert) for notice in receiver.notices}

    ask("docker", "stop", stack.containers()["exporter"].name)
    assert receiver.await_until(lambda: told("firing"), 200)
    told_first = receiver.notices[0]
    assert (told_first.alert, told_first.sender) == ("ApcExporterDown", f"docker?token={HOOK_TOKEN}")
    stack.up()
    assert receiver.await_until(lambda: told("resolved"), 60)


def test_down_keeps_the_data(stack: Stack) -> None:
    moment = time.time()
    wait_for(lambda: stack.query(HIT_RATE, moment), 30)
    before = stack.query(HIT_RATE, moment)
    assert stack.host("down").returncode == 0
    assert stack.containers() == {}
    assert stack.host("status").returncode == 3
    assert f"{stack.project}_prometheus" in docker.volumes(stack.project)
    assert stack.host("clean").returncode == 2  # it asks, and nobody is there to answer
    stack.up()
    assert stack.query(HIT_RATE, moment) == before


def test_a_second_stack_is_told_what_holds_its_ports_before_anything_starts(stack: Stack, tmp_path: Path) -> None:
    other = Stack(tmp_path, "other")
    port = stack.environ["PROMETHEUS_PORT"]
    up = other.host("up", PROMETHEUS_PORT=port)
    assert up.returncode == 2
    holder = stack.containers()["prometheus"].name
    assert f"PROMETHEUS_PORT: port {port} is taken by the container {holder}." in up.stderr
    assert other.containers() == {}


def test_an_engine_that_no_container_reaches_is_explained_and_one_that_loads_is_waited_for(tmp_path: Path) -> None:
    stack = Stack(tmp_path, "reach", APC_WITHOUT="grafana,alertmanager,probe")
    try:
        with socket.create_server(("127.0.0.1", 0)) as engine:
            told = stack.up(VLLM_URL=f"http://localhost:{engine.getsockname()[1]}")
        assert "is asked for as http://host.docker.internal" in told
        assert told.count("bound_to_loopback: the engine listens on 127.0.0.1 only") == 2  # before the start, and after

        port = free_port()
        told = stack.up(VLLM_URL=f"http://localhost:{port}")
        assert f"starting_or_down: nothing listens on port {port}" in told
        wait_for(lambda: stack.query("apc_engine_up") == [0.0])
        with socket.create_server((docker.gateway(), port)) as engine:
            threading.Thread(target=_answer, args=(engine,), daemon=True).start()
            wait_for(lambda: stack.query("apc_engine_up") == [1.0])
            told = stack.up(VLLM_URL=f"http://localhost:{port}")
        assert f"Engine       http://host.docker.internal:{port} answers" in told
    finally:
        stack.host("down")
        stack.host("clean", "--yes")
    assert docker.volumes(stack.project) == []
    assert not (tmp_path / "run" / "docker").exists()
    assert (tmp_path / "env").exists()


def _answer(listener: socket.socket) -> None:
    try:
        while True:
            with listener.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(reply(ENGINE))
    except OSError:
        return
