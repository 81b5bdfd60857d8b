"""What a Compose file must and must not say, each rule from a field report or from the issue. Pure: YAML -> faults."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

Service = Mapping[str, Any]
Rule = Callable[[str, Service], Iterator[str]]

LOCAL = re.compile(r"\w+://(localhost|127\.[\d.]+|0\.0\.0\.0|\[::1?\])")
VARIABLE = re.compile(r"\$\{[^}]*\}")
DEFAULT = re.compile(r"\$\{\w+:?-(?P<value>[^}]*)\}")
KEY = re.compile(r".*(KEY|PASSWORD|TOKEN|SECRET)")
ENGINE_SETTING = re.compile(r".*(URL|TARGETS?)")
ENGINE_IMAGE = re.compile(r"vllm|sglang")
FORBIDDEN_FLAGS = ("--web.enable-admin-api", "--web.enable-lifecycle")
# Of Grafana's sections those that begin like a likely typing error; the names in them that exist.
GRAFANA = {
    "GF_SECURITY_": {"ADMIN_USER", "ADMIN_PASSWORD", "ADMIN_EMAIL", "SECRET_KEY", "DISABLE_GRAVATAR", "COOKIE_SECURE"}
    | {"COOKIE_SAMESITE", "ALLOW_EMBEDDING", "STRICT_TRANSPORT_SECURITY", "CONTENT_SECURITY_POLICY"},
    "GF_USERS_": {"ALLOW_SIGN_UP", "ALLOW_ORG_CREATE", "AUTO_ASSIGN_ORG", "DEFAULT_THEME", "VIEWERS_CAN_EDIT"},
    "GF_AUTH_ANONYMOUS_": {"ENABLED", "ORG_NAME", "ORG_ROLE"},
}


def lint(text: str) -> list[str]:
    """Return the faults of a Compose file, each beginning with the service's name."""
    content = yaml.safe_load(text)
    faults = ["version: is obsolete"] if "version" in content else []
    services: Mapping[str, Service] = content["services"]
    for name, service in services.items():
        faults += [f"{name}: {fault}" for rule in RULES for fault in rule(name, service)]
        faults += [f"{name}: {fault}" for fault in _waits(service, services)]
    return faults


def is_engine(service: Service) -> bool:
    """Whether it needs minutes to load a model."""
    return bool(ENGINE_IMAGE.search(_plain(service.get("image", ""))))


def _image(_: str, service: Service) -> Iterator[str]:
    image = _plain(service.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    if tag in {"", "latest", "main"} and "@sha256:" not in image:
        yield f"image {image or '(none)'} is not pinned"
    if "${" not in service.get("image", ""):
        yield f"image {image or '(none)'} cannot be replaced by a variable"


def _ports(_: str, service: Service) -> Iterator[str]:
    for port in map(str, service.get("ports", ())):
        if not port.startswith("127.0.0.1:"):
            yield f"port {port} is published on more than 127.0.0.1"
        if "${" not in port:
            yield f"port {port} cannot be moved"
        if VARIABLE.sub("$", port).rpartition(":")[2].startswith("$"):
            yield f"port {port} moves the inner port as well"


def _volumes(_: str, service: Service) -> Iterator[str]:
    for volume in service.get("volumes", ()):
        source, target, options = _mount(volume)
        if target.startswith("/var/run/docker"):
            yield "may command Docker itself"
        if not source.startswith((".", "/", "~", "$")):
            continue  # a named volume
        if not {"z", "Z"} & options:
            yield f"bind mount without z: {source}"
        if "ro" not in options:
            yield f"bind mount that can be written: {source}"


def _reach(_: str, service: Service) -> Iterator[str]:
    environment = _environment(service)
    asks = [name for name in environment if ENGINE_SETTING.fullmatch(name) and not name.startswith("GF_")]
    hosts = " ".join(map(str, service.get("extra_hosts", ())))
    if asks and "host-gateway" not in hosts:
        yield "no extra_hosts host-gateway"
    for text in (*environment.values(), *map(str, _listed(service.get("command", ())))):
        if LOCAL.search(text):
            yield f"target localhost inside a container: {text}"


def _keys(_: str, service: Service) -> Iterator[str]:
    for name, value in _environment(service).items():
        if name.endswith("__FILE") or not KEY.fullmatch(name):
            continue
        if "PASSWORD" in name and value and (not value.startswith("${") or (DEFAULT.search(value) or [""])[0]):
            yield f"default admin password: {name}"
        yield f"{name} is in the environment, where docker inspect shows it; mount it as a file"


def _grafana(_: str, service: Service) -> Iterator[str]:
    for name in _environment(service):
        for section, known in GRAFANA.items():
            if name.startswith(section) and name.removeprefix(section).removesuffix("__FILE") not in known:
                yield f"{name} is not a Grafana setting"


def _flags(_: str, service: Service) -> Iterator[str]:
    for flag in _listed(service.get("command", ())):
        if str(flag).startswith(FORBIDDEN_FLAGS):
            yield f"{flag} lets anyone who reaches the port delete or reload"


def _hardening(_: str, service: Service) -> Iterator[str]:
    if service.get("privileged"):
        yield "is privileged"
    if service.get("cap_drop") != ["ALL"]:
        yield "keeps capabilities: cap_drop: [ALL]"
    if "no-new-privileges:true" not in service.get("security_opt", ()):
        yield "may gain privileges: security_opt: [no-new-privileges:true]"
    if service.get("restart") != "unless-stopped":
        yield "is not started again: restart: unless-stopped"
    if "max-size" not in service.get("logging", {}).get("options", {}):
        yield "fills the disk with its log: logging.options.max-size"
    if not is_engine(service):  # a model needs all memory, and compiles kernels as it starts
        if not service.get("read_only"):
            yield "may write its root: read_only: true"
        if "mem_limit" not in service:
            yield "may take all memory: mem_limit"


def _waits(service: Service, services: Mapping[str, Service]) -> Iterator[str]:
    needs = service.get("depends_on", {})
    for name, need in needs.items() if isinstance(needs, dict) else ():
        if need.get("condition") == "service_healthy" and is_engine(services.get(name, {})):
            yield f"depends_on: {name}: condition: service_healthy, but a model loads for minutes"


RULES: tuple[Rule, ...] = (_image, _ports, _volumes, _reach, _keys, _grafana, _flags, _hardening)


def _plain(text: str) -> str:
    """Fill variables in with their defaults."""
    return DEFAULT.sub(lambda match: match["value"], text)


def _mount(volume: str | Mapping[str, Any]) -> tuple[str, str, set[str]]:
    """Return source, target and options of a mount in either syntax."""
    if isinstance(volume, str):
        source, _, rest = VARIABLE.sub(lambda match: match[0].replace(":", "\0"), volume).partition(":")
        target, _, options = rest.partition(":")
        return source.replace("\0", ":"), target, set(options.split(","))
    label = volume.get("bind", {}).get("selinux", "")
    return volume["source"], volume["target"], {label, "ro" if volume.get("read_only") else "rw"}


def _environment(service: Service) -> dict[str, str]:
    found = service.get("environment", {})
    pairs = found.items() if isinstance(found, dict) else (entry.partition("=")[::2] for entry in found)
    return {name: "" if value is None else str(value) for name, value in pairs}


def _listed(command: str | list[str]) -> list[str]:
    return command.split() if isinstance(command, str) else list(command)
