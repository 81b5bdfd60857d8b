"""What the exporter says of the engines: the stack is up without them, and tells which are not."""

from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from native import web
from native.programs import Service

SECONDS: Final = 30.0  # the exporter waits for its engines in turn with this


def silent(exposition: str) -> dict[str, str]:
    """Return the engines without series, and the reason of each; empty where it is not told."""
    samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    reasons = {
        sample.labels["target"]: sample.labels["reason"]
        for sample in samples
        if sample.name == "apc_engine_scrape_error" and sample.value
    }
    return {
        target: reasons.get(target, "")
        for sample in samples
        if sample.name == "apc_engine_up" and not sample.value and (target := sample.labels["target"])
    }


def ask(exporter: Service) -> dict[str, str]:
    """Return the silent engines as the exporter sees them now; raises one of web.FAILURES."""
    return silent(web.get(exporter.url, SECONDS).text)
