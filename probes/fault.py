"""An error as the JSON of an answer or of a chunk tells it, in any of the usual shapes. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probes.outcome import MAX_READ


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as the body tells it; `kind` has its type, code and status in lower case."""

    message: str
    code: int | None = None
    kind: str = ""
    fields: tuple[str, ...] = ()  # the parameters that it is about, each with those around it

    @property
    def said(self) -> str:
        """All its words, in lower case."""
        return f"{self.kind} {self.message}".lower()


def parsed(body: str) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON of the body; None if it is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def objects(value: object) -> list[dict[str, Any]]:
    """Return the JSON objects of a list; a server may send anything."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def fault_in(data: object) -> Fault | None:
    """Find the error in the JSON; None if it tells of none."""
    if isinstance(data, list):  # Gemini's: the usual object, alone in a list
        data = next(iter(objects(data)), None)
    if not isinstance(data, dict):
        return None
    error = data.get("error")
    if isinstance(error, dict) and error:
        return _fault(error)
    if isinstance(error, str) and error:
        return _fault({"type": error, **data, "message": data.get("error_description") or data.get("message") or error})
    if "choices" in data or "data" in data:
        return _in_choices(data.get("choices"))
    if isinstance(data.get("detail"), list):
        return _in_details(objects(data["detail"]))
    message = next((data[name] for name in ("message", "Message", "msg", "detail") if data.get(name)), None)
    return _fault({**data, "message": message}) if message else None


def _in_details(details: list[dict[str, Any]]) -> Fault:
    """Read FastAPI's: one entry for each parameter."""
    places = [entry["loc"] for entry in details if isinstance(entry.get("loc"), list)]
    fields = [str(part) for place in places for part in place]
    kinds = " ".join(str(entry.get("type", "")) for entry in details)
    messages = "; ".join(str(entry.get("msg", "")) for entry in details)
    return Fault(messages[:MAX_READ], None, kinds.lower(), tuple(fields))


def _in_choices(choices: object) -> Fault | None:
    for choice in objects(choices):
        if error := choice.get("error"):
            return _fault(error if isinstance(error, dict) else {"message": error})
        if choice.get("finish_reason") == "error":
            return Fault("the server ended it with finish_reason error")
    return None


def _fault(error: Mapping[str, Any]) -> Fault:
    kinds = [str(error[name]) for name in ("type", "code", "status") if error.get(name) is not None]
    numbers = [int(kind) for kind in kinds if re.fullmatch(r"-?[0-9]{1,9}", kind)]
    param = error.get("param")
    fields = tuple(param.split(".")) if isinstance(param, str) else ()
    message = str(error.get("message") or error)[:MAX_READ]
    return Fault(message, next(iter(numbers), None), " ".join(kinds).lower(), fields)
