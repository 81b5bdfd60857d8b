"""Where the engine cannot be reached, and what is said of the way there."""

import pytest

from exporter.scrape import Reason, ScrapeError
from probes.evidence import Evidence, Reply
from probes.judge import judge
from probes.outcome import ErrorClass, Failure, Names

HITS = tuple(Reply(2003, 1984) for _ in range(2))
UNKNOWN_NAME = ScrapeError(Reason.DNS, "the name metrics.example is not known here")


def refused(host: str, *, in_container: bool = True) -> str:
    failure = Failure(ErrorClass.CONNECTION_REFUSED, f"nothing listens at {host}:8000")
    (verdict,) = judge(Evidence(failure=failure, in_container=in_container))
    return verdict.code


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.1.1", "0.0.0.0", "[::1]", "[::]", "ip6-localhost"])
def test_localhost_is_the_container_itself(host: str) -> None:
    assert refused(host) == "localhost_in_container"
    assert refused(host, in_container=False) == "starting_or_down"


@pytest.mark.parametrize(
    "host", ["host.docker.internal", "gateway.docker.internal", "host.containers.internal", "host-gateway"]
)
def test_a_name_of_the_host_that_refuses_is_bound_to_its_loopback(host: str) -> None:
    assert refused(host) == refused(host, in_container=False) == "bound_to_loopback"


@pytest.mark.parametrize("host", ["172.17.0.1", "172.18.0.1", "10.88.0.1", "10.0.2.2"])
def test_an_address_of_the_host_is_one_within_a_container(host: str) -> None:
    assert refused(host) == "bound_to_loopback"
    assert refused(host, in_container=False) == "starting_or_down"


@pytest.mark.parametrize(
    "host", ["vllm", "10.1.2.3", "172.17.0.10", "1172.17.0.1", "localhost.example", "host.docker.internal.example"]
)
def test_another_host_that_refuses_is_down(host: str) -> None:
    assert refused(host) == "starting_or_down"


def test_a_name_of_the_metrics_alone_is_no_fault_of_the_api() -> None:
    verdicts = judge(Evidence(scrape_error=UNKNOWN_NAME, replies=HITS))
    assert [verdict.code for verdict in verdicts] == ["metrics_unusable"]
    assert "VLLM_METRICS_URL" in verdicts[0].remedy
    assert [verdict.code for verdict in judge(Evidence(scrape_error=UNKNOWN_NAME))] == ["dns"]


def test_an_api_that_answers_with_a_failure_is_reached_all_the_same() -> None:
    failure = Failure(ErrorClass.RATE_LIMITED, "HTTP 429: slow down")
    verdicts = judge(Evidence(scrape_error=UNKNOWN_NAME, failure=failure))
    assert {verdict.code for verdict in verdicts} == {"canary_failing", "metrics_unusable"}


def test_a_proxy_that_answers_is_named_with_the_way_round_it() -> None:
    names = Names(url="GATEWAY_BASE_URL")
    failure = Failure(ErrorClass.PROXY, "HTTP 503: a proxy answered (1.1 proxy.example)", names=names)
    (verdict,) = judge(Evidence(failure=failure))
    assert verdict.code == "proxy_intercepted"
    assert "(HTTP 503: a proxy answered (1.1 proxy.example))" in verdict.sentence
    assert "GATEWAY_BASE_URL" in verdict.remedy
    assert "HTTP_PROXY" not in verdict.remedy
