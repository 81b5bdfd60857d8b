import socket
from collections.abc import Iterator

import pytest

from host import reach
from probes.verdict import Code
from tests.inputs import CASES, expectation
from tests.sockets import free_port

GATEWAY = f"http://{reach.GATEWAY}:8000"


@pytest.fixture
def loopback_only() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("http://localhost:8000", GATEWAY),
        ("http://127.0.0.1:8000/v1", f"{GATEWAY}/v1"),
        ("http://[::1]:8000", GATEWAY),
        ("https://localhost/v1", f"https://{reach.GATEWAY}/v1"),
        ("http://gpu-1:8000", "http://gpu-1:8000"),
        ("http://localhost.example:8000", "http://localhost.example:8000"),
    ],
)
def test_localhost_becomes_the_machine(given: str, wanted: str) -> None:
    assert reach.from_container(given) == wanted


def test_three_ways_not_to_reach_the_engine_are_told_apart() -> None:
    [case] = CASES.glob("59-*")
    found = {
        "name_not_found": reach.explain("http://gpu-1.local:8000", "dns"),
        "refused_localhost": reach.explain("http://localhost:8000", "refused"),
        "refused_host_gateway": reach.explain(GATEWAY, "refused", answers_on_loopback=True),
    }
    told = {name: finding and finding.code.upper() for name, finding in found.items()}
    assert told == expectation(case)["doctor"]["codes"]


def test_each_finding_has_a_remedy() -> None:
    told = {
        (reason, here): reach.explain(GATEWAY, reason, answers_on_loopback=here)
        for reason in ("refused", "timeout")
        for here in (True, False, None)
    }
    assert all(told.values())
    assert "--host 0.0.0.0" in told["refused", True].text  # type: ignore[union-attr]
    assert "may listen" in told["refused", None].text  # type: ignore[union-attr]
    assert told["refused", False].code == Code.STARTING_OR_DOWN  # type: ignore[union-attr]
    assert "ufw allow" in told["timeout", True].text  # type: ignore[union-attr]


@pytest.mark.parametrize("reason", ["auth", "http_5xx", "no_engine_series", ""])
def test_a_fault_of_the_engine_itself_is_not_explained_away(reason: str) -> None:
    assert reach.explain(GATEWAY, reason) is None
    assert reach.explain("http://gpu-1:8000", "refused") is None


def test_what_a_container_will_meet_is_seen_from_here(loopback_only: int) -> None:
    finding = reach.foresee(f"http://{reach.GATEWAY}:{loopback_only}", "127.0.0.2")  # an address it does not listen on
    assert finding
    assert finding.code == Code.BOUND_TO_LOOPBACK
    finding = reach.foresee(f"http://{reach.GATEWAY}:{free_port()}", "127.0.0.2")
    assert finding
    assert finding.code == Code.STARTING_OR_DOWN
    assert reach.foresee(f"http://{reach.GATEWAY}:{loopback_only}", "127.0.0.1") is None
    assert reach.foresee("http://gpu-1:8000", "127.0.0.1") is None
    assert reach.foresee(GATEWAY, "") is None


def test_a_name_that_is_none_is_no_refusal() -> None:
    assert reach.connect("no-such-name.invalid", 80) == "dns"
