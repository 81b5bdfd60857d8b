"""Why the engine, its API or its metrics cannot be reached."""

import re

from exporter.scrape import Reason
from probes.evidence import Evidence
from probes.outcome import ErrorClass
from probes.verdict import Code, Verdict, fault, warning

# A host in a sentence, with nothing of a longer name around it.
LOCAL = re.compile(r"(?<![\w.-])(?:(?:localhost|ip6-localhost|0\.0\.0\.0|127(?:\.\d+){3})(?![\w-]|\.\w)|\[::1?\])")
HOST_NAME = re.compile(r"(?<![\w.-])(?:(?:host|gateway)\.[a-z]+\.internal|host-gateway)(?![\w-]|\.\w)")
# The bridges of Docker and of Podman, and the host as rootless networks have it.
HOST_ADDRESS = re.compile(r"(?<![\w.-])(?:172\.(?:1[6-9]|2\d|3[01])\.0\.1|10\.(?:88\.0\.1|0\.2\.2))(?![\w-]|\.\w)")
NOT_THERE = {ErrorClass.CONNECTION_REFUSED, ErrorClass.TIMEOUT_CONNECT}


def proxy_intercepted(evidence: Evidence) -> Verdict | None:
    """A proxy answered in the engine's place. The probe uses none itself, so it stands on the way."""
    failure = evidence.failure
    if failure is None or failure.error_class is not ErrorClass.PROXY:
        return None
    return fault(
        Code.PROXY_INTERCEPTED,
        f"The request left through a proxy, which answered in the engine's place ({failure.message}).",
        f"{failure.remedy}, or let the proxy pass the engine's address; NO_PROXY changes nothing: the probe ignores it",
    )


def dns(evidence: Evidence) -> Verdict | None:
    """The name is not known."""
    if not _unreached(evidence, {ErrorClass.DNS}, Reason.DNS):
        return None
    remedy = "correct the host in VLLM_URL; in a container, add extra_hosts: ['host.docker.internal:host-gateway']"
    return fault(Code.DNS, f"The engine's name is not known here: {_detail(evidence)}.", remedy)


def localhost_in_container(evidence: Evidence) -> Verdict | None:
    """localhost is the container itself."""
    if not (_refused(evidence) and evidence.in_container and LOCAL.search(_detail(evidence))):
        return None
    return fault(
        Code.LOCALHOST_IN_CONTAINER,
        "Nothing listens at localhost: within a container that is the container itself, not the host.",
        "VLLM_URL=http://host.docker.internal:8000 with the engine started with --host 0.0.0.0; an engine within this "
        "container is down, or loads its model",
    )


def bound_to_loopback(evidence: Evidence) -> Verdict | None:
    """The host is reached and refuses: the engine listens on its loopback only."""
    told = _detail(evidence)
    of_host = HOST_NAME.search(told) or (evidence.in_container and HOST_ADDRESS.search(told))
    if not (_refused(evidence) and of_host):
        return None
    return fault(
        Code.BOUND_TO_LOOPBACK,
        "The host refuses the connection from the container: the engine is not up, or listens on 127.0.0.1 only.",
        "start vLLM with --host 0.0.0.0, or let it join the stack's network",
    )


def starting_or_down(evidence: Evidence) -> Verdict | None:
    """Nothing listens, or /health says no."""
    if _refused(evidence):
        return fault(
            Code.STARTING_OR_DOWN,
            f"The engine does not answer ({_detail(evidence)}): it loads its model, or is down.",
            "wait while a large model loads, correct VLLM_URL, or start it; curl -i http://localhost:8000/health tells",
        )
    if evidence.healthy is False:
        return fault(
            Code.STARTING_OR_DOWN,
            "The engine's /health does not answer 200, so figures of its /metrics may be frozen.",
            "curl -i http://localhost:8000/health ; then see the end of the engine's log, and restart it",
        )
    return None


def auth_login_page(evidence: Evidence) -> Verdict | None:
    """A sign-in page came in place of the API or of the metrics."""
    if not _failed(evidence, ErrorClass.HTML_LOGIN) and not (
        _scrape_failed(evidence, Reason.HTML) and evidence.failure is None and not evidence.replies
    ):
        return None
    return fault(
        Code.AUTH_LOGIN_PAGE,
        "A login page came in place of an answer: a sign-in proxy stands before the API, token missing or expired.",
        "send the token that it wants (VLLM_API_KEY, VLLM_METRICS_API_KEY), or use the address behind the proxy",
    )


def metrics_unusable(evidence: Evidence) -> Verdict | None:
    """/metrics answers and tells nothing of the engine."""
    error = evidence.scrape_error
    if error is None:
        return None
    works = " Inference works." if evidence.replies else ""
    return warning(
        Code.METRICS_UNUSABLE,
        f"The engine's /metrics cannot be used ({error}).{works}",
        "start vLLM without --disable-log-stats; check PROMETHEUS_MULTIPROC_DIR, and that VLLM_METRICS_URL is right",
        reason=str(error.reason),
    )


def canary_failing(evidence: Evidence) -> Verdict | None:
    """The canary's requests fail for a reason that has a name."""
    failure = evidence.failure
    if failure is None:
        return None
    return fault(
        Code.CANARY_FAILING,
        f"The canary fails with {failure.error_class}: {failure.message}",
        failure.remedy,
        error_class=str(failure.error_class),
    )


def _failed(evidence: Evidence, error_class: ErrorClass) -> bool:
    return evidence.failure is not None and evidence.failure.error_class is error_class


def _scrape_failed(evidence: Evidence, reason: Reason) -> bool:
    return evidence.scrape_error is not None and evidence.scrape_error.reason is reason


def _refused(evidence: Evidence) -> bool:
    return _unreached(evidence, NOT_THERE, Reason.REFUSED)


def _unreached(evidence: Evidence, error_classes: set[ErrorClass], reason: Reason) -> bool:
    """The API cannot be reached so; or the metrics cannot, and nothing is known of the API."""
    if evidence.failure:
        return evidence.failure.error_class in error_classes
    return _scrape_failed(evidence, reason) and not evidence.replies


def _detail(evidence: Evidence) -> str:
    if evidence.failure:
        return evidence.failure.message
    return evidence.scrape_error.detail if evidence.scrape_error else ""
