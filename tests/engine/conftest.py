"""Real vLLM servers on the CPU; each takes the better part of a minute to start."""

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest

from demo import vllm_cpu
from tests.sockets import free_port

Start = Callable[..., AbstractContextManager[str]]


def start(*extra: str, block_size: int = 32) -> AbstractContextManager[str]:
    """Start a server with the article's flags and these; yields its base URL."""
    return vllm_cpu.running(vllm_cpu.default_home(), free_port(), block_size=block_size, extra=extra)


@pytest.fixture(scope="module")
def vllm() -> Iterator[str]:
    """One server with a large cache, shared by the tests of a module."""
    with start() as url:
        yield url


@pytest.fixture
def reset(vllm: str) -> Callable[[], None]:
    """Empty the server's prefix cache."""
    request = urllib.request.Request(f"{vllm}/reset_prefix_cache", method="POST")
    return partial(_open, request)


def _open(request: urllib.request.Request) -> None:
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200
