"""Docker through a stand-in of its command that answers from a table."""

import json
import os
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from host import commands, docker, ports
from host.services import SERVICES, Placed
from native.errors import NativeError, SettingsError
from native.report import step
from tests.sockets import free_port

FINE = {"version": "27.1.1", "compose version": "2.29.1"}
Answers = Mapping[str, str | tuple[int, str]]
CONTAINER = {
    "Name": "/other-web-1",
    "RestartCount": 2,
    "State": {
        "Status": "running",
        "ExitCode": 0,
        "StartedAt": "2026-11-29T14:35:28.741452645Z",
        "Health": {"Status": "healthy"},
    },
    "Config": {"Labels": {docker.PROJECT_LABEL: "other", docker.SERVICE_LABEL: "web"}},
    "NetworkSettings": {"Ports": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "9390"}], "81/tcp": None}},
}


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers], None]:
    """Put a `docker` on the path that answers by the beginning of its arguments."""

    def install(answers: Answers) -> None:
        table = {known: (0, said) if isinstance(said, str) else said for known, said in answers.items()}
        script = tmp_path / "docker"
        script.write_text(
            "#!/usr/bin/env python3\nimport sys\n"
            f"for known, (status, said) in {table!r}.items():\n"
            "    if ' '.join(sys.argv[1:]).startswith(known):\n"
            "        print(said, file=sys.stderr if status else sys.stdout)\n"
            "        sys.exit(status)\n"
            "sys.exit('no such answer: ' + ' '.join(sys.argv[1:]))\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return install


def test_an_engine_with_compose_is_told_by_its_version(answering: Callable[[Answers], None]) -> None:
    answering(FINE)
    assert docker.require() == "27.1.1"


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"version": (1, "Cannot connect to the Docker daemon")}, "sudo systemctl start docker"),
        ({"version": (1, "permission denied while trying to connect")}, "usermod -aG docker"),
        ({"version": "19.03.1"}, "19.03.1 is too old"),
        ({"version": "27.1.1", "compose version": (1, "unknown command")}, "no Compose v2"),
        ({"version": "27.1.1", "compose version": "1.29.2"}, "no Compose v2"),
    ],
)
def test_what_is_missing_is_told_with_its_remedy(
    answering: Callable[[Answers], None], answers: Answers, told: str
) -> None:
    answering(answers)
    with pytest.raises(docker.NoDockerError, match=told):
        docker.require()


def test_without_the_command_docker_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(docker.NoDockerError, match="not installed"):
        docker.require()


def test_up_without_an_engine_says_so_and_starts_the_native_stack(
    answering: Callable[[Answers], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering({"version": (1, "Cannot connect to the Docker daemon")})
    monkeypatch.setattr("native.commands.up", lambda _: 7)
    assert commands.up(Namespace()) == 7
    told = capsys.readouterr().out
    assert "No Docker engine answers: Cannot connect" in told
    assert "without Docker" in told


def test_the_doctor_runs_within_the_probes_container_with_the_keys_there(
    answering: Callable[[Answers], None], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    probe = CONTAINER | {"Name": "/apc-probe-1", "Config": {"Labels": {docker.SERVICE_LABEL: "probe"}}}
    within = "exec apc-probe-1 /bin/sh /opt/image/with-secrets python3 -m probes doctor --json --pause=5"
    answering(FINE | {"ps -q -a": "abc", "inspect": json.dumps([CONTAINER, probe]), within: "from within"})
    monkeypatch.setenv("APC_ENV_FILE", os.devnull)
    asked = Namespace(json=True, pause="5")
    assert commands.doctor(asked) == 0
    assert capfd.readouterr().out == "from within\n"

    monkeypatch.setattr("native.commands.doctor", lambda _: 7)
    monkeypatch.setenv("VLLM_URL", "http://another:8000")  # which the call names
    assert commands.doctor(asked) == 7
    monkeypatch.delenv("VLLM_URL")
    answering(FINE | {"ps -q": ""})
    assert commands.doctor(asked) == 7


def test_containers_are_read(answering: Callable[[Answers], None]) -> None:
    answering({"ps -q": "abc", "inspect": json.dumps([CONTAINER])})
    [found] = docker.containers()
    assert (found.name, found.project, found.service) == ("other-web-1", "other", "web")
    assert (found.state, found.health, found.restarts, found.ports) == ("running", "healthy", 2, (9390,))
    assert found.started.microsecond == 741452


def test_a_port_of_another_container_is_told_by_its_name(answering: Callable[[Answers], None]) -> None:
    answering({"ps -q": "abc", "inspect": json.dumps([CONTAINER])})
    prometheus = next(Placed(service, 9390) for service in SERVICES if service.name == "prometheus")
    with pytest.raises(SettingsError, match=r"PROMETHEUS_PORT: port 9390 is taken by the container other-web-1\."):
        ports.require_free([prometheus], docker.containers(), "mine")
    ports.require_free([prometheus], docker.containers(), "other")
    ports.require_free([Placed(prometheus.service, free_port())], (), "mine")


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ([{"Subnet": "172.17.0.0/16"}], "172.17.0.1"),
        (
            [{"Subnet": "fd00::/64", "Gateway": "fd00::1"}, {"Subnet": "172.17.0.0/16", "Gateway": "172.17.9.9"}],
            "172.17.9.9",
        ),
        (None, ""),
    ],
)
def test_this_machines_address_is_told_or_the_first_of_its_network(
    answering: Callable[[Answers], None], config: object, wanted: str
) -> None:
    answering({"network inspect": json.dumps(config)})
    assert docker.gateway() == wanted


def test_without_dockers_default_network_this_machine_has_no_address_there(
    answering: Callable[[Answers], None],
) -> None:
    answering({"network inspect": ""})  # an empty line, and the fault beside it
    assert docker.gateway() == ""


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Error response from daemon: pull access denied for grafana", "APC_WITHOUT=grafana"),
        ("dial tcp: lookup registry: no such host", "GRAFANA_IMAGE"),
        ('could not select device driver "nvidia" with capabilities: [[gpu]]', "nvidia-ctk"),
        ("Bind for 127.0.0.1:9390 failed: port is already allocated", "run this again"),
        ("write /x: no space left on device", "docker system df"),
    ],
)
def test_a_failure_of_compose_is_told_with_its_remedy(
    answering: Callable[[Answers], None], capsys: pytest.CaptureFixture[str], said: str, remedy: str
) -> None:
    answering({"compose up": (1, said)})
    with step("up") as running, pytest.raises(NativeError) as caught:
        docker.compose(["up"], os.environ, running)
    assert said in str(caught.value)
    assert remedy in str(caught.value)
    assert capsys.readouterr().out
