"""What the exporter says of the engines: the stack is up without them, and tells which are not."""

from collections.abc import Callable
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from native import web

SECONDS: Final = 30.0  # the exporter answers once the slowest of its engines has, or did not in time


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


def tell(exporter: str, engine: str = "", explain: Callable[[str], str] = lambda _: "") -> bool:
    """Print which engines do not answer, as the exporter at this URL sees them now; returns whether all do.

    `engine` is the one engine's URL, empty where there are several; `explain` may add a line to a reason of it.
    """
    try:
        unheard = silent(web.get(exporter, SECONDS).text)
    except web.FAILURES as error:
        print(f"  Engines      the exporter does not answer about them: {error}")
        return False
    for target, reason in unheard.items():
        at, why = (f" at {engine}" if engine else ""), (f": {reason}" if reason else "")
        print(f"  Engine       {target}{at} does not answer yet{why}; apc_engine_up is 0 until it does")
        if engine and (explanation := explain(reason)):
            print(f"               {explanation}")
    if not unheard:
        print(f"  Engine       {engine} answers" if engine else "  Engines      all answer")
    return not unheard
