"""The OpenAI protocol as vLLM speaks it: a call's body -> prompts, tokens -> its answer, and its errors."""

import re
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Final

from demo.rank import Rank, Request, Settings
from exporter.engine import Dialect

SPECIALS: Final = {"<|endoftext|>": 256, "<|im_start|>": 257, "<|im_end|>": 258}
END: Final = SPECIALS["<|im_end|>"]
SENTENCES: Final = (
    b"Restart the router, wait for the green light, then try again. ",
    b"The invoice is sent on the first working day of each month. ",
    b"Your ticket has been passed on to the second line. ",
)


@dataclass(frozen=True)
class Answer:
    """A whole HTTP answer; a body that is not text goes out as JSON."""

    status: int = 200
    body: Any = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusedError(Exception):
    """The request gets this answer instead of the one that it asked for."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.answer = answer


def failure(status: int, message: str, param: str | None = None, **headers: str) -> Answer:
    """Return an error in vLLM's shape."""
    kind = {400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError"}.get(status, "InternalServerError")
    return Answer(status, {"error": {"message": message, "type": kind, "param": param, "code": status}}, headers)


LOGIN_PAGE: Final = Answer(200, "<!doctype html><title>Sign in</title>\n", {"Content-Type": "text/html"})
V1_REFUSALS: Final = {
    "unauthorized": Answer(401, {"error": "Unauthorized"}),
    "not_found": Answer(404, {"detail": "Not Found"}),
    "login_page": Answer(302, headers={"Location": "/login"}),
}
COMPLETION_REFUSALS: Final = {
    "dead": failure(500, "EngineCore encountered an issue. See stack trace (above) for the root cause."),
    "server_error": failure(500, "Internal server error"),
    "rate_limited": failure(429, "Too many requests", **{"Retry-After": "2"}),
    "error_in_200": replace(failure(429, "daily quota exceeded"), status=200),
}


def encode(text: str) -> list[int]:
    """Return the tokens of a text: a special marker is one, every other byte of its UTF-8 is one."""
    parts = re.split("(" + "|".join(map(re.escape, SPECIALS)) + ")", text)
    return [token for part in parts for token in ([SPECIALS[part]] if part in SPECIALS else part.encode())]


def render_chat(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the messages as ChatML that ends where the assistant is to go on. Raise ValueError for none."""
    if not messages:
        raise ValueError("an empty conversation")
    written = "".join(f"<|im_start|>{message['role']}\n{_content(message)}<|im_end|>\n" for message in messages)
    return written + "<|im_start|>assistant\n"


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


class Call:
    """One call of a completions endpoint, and the faults that it met."""

    def __init__(self, body: Mapping[str, Any], *, chat: bool, settings: Settings, faults: Mapping[str, Any]) -> None:
        """Read a request's body. Raise AttributeError, LookupError, TypeError or ValueError if that fails."""
        self.chat, self.settings, self.faults = chat, settings, faults
        prompts = [encode(render_chat(body["messages"]))] if chat else _prompts(body["prompt"])
        self.longest = max(map(len, prompts))
        self.prompt_tokens = sum(map(len, prompts))
        self.prompts = [prompt for prompt in prompts for _ in range(int(body.get("n") or 1))]
        limits = (body.get("max_completion_tokens"), body.get("max_tokens"), settings.capacity if chat else 16)
        self.asked = next(int(limit) for limit in limits if limit is not None)
        self.limit = min(self.asked, settings.capacity - self.longest)
        self.at_least = self.limit if body.get("ignore_eos") else int(body.get("min_tokens") or 0)
        self.extra = (str(body.get("cache_salt") or ""),)
        unread = body.get("prompt_logprobs") is not None or (body.get("echo") and body.get("logprobs") is not None)
        self.read = not unread and "lookup_skipped" not in faults
        options = body.get("stream_options") or {}
        self.stream = bool(body.get("stream"))
        self.usage = "no_usage" not in faults and bool(options.get("include_usage") or not self.stream)
        self.continuous_usage = self.usage and bool(options.get("continuous_usage_stats"))
        self.model = body.get("model") or settings.model
        kind = ("chat.completion.chunk" if self.stream else "chat.completion") if chat else "text_completion"
        name = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.common = {"id": name, "object": kind, "created": int(time.time()), "model": self.model}

    def check(self) -> None:
        """Raise RefusedError for another model or too many tokens."""
        capacity = self.settings.capacity
        if self.model != self.settings.model:
            raise RefusedError(failure(404, f"The model `{self.model}` does not exist.", "model"))
        if self.asked > capacity:
            message = f"max_tokens={self.asked} cannot be greater than max_model_len={capacity}."
            raise RefusedError(failure(400, message, "max_tokens"))
        if self.longest > capacity:
            message = f"This model's maximum context length is {capacity} tokens. However, your prompt contains"
            raise RefusedError(failure(400, f"{message} {self.longest} input tokens.", "input_tokens"))
        if self.limit < 1:
            raise RefusedError(failure(400, f"max_tokens must be at least 1, got {self.limit}.", "max_tokens"))

    def answer_to(self, prompt: Sequence[int]) -> Iterator[int]:
        """Return the tokens of one answer, with the end marker where there is room for it."""
        sentence = SENTENCES[sum(prompt) % len(SENTENCES)]
        return islice(chain(sentence * max(1, -(-self.at_least // len(sentence))), [END]), self.limit)

    def details(self, cached_tokens: int) -> dict[str, Any]:
        """Return `prompt_tokens_details` as this version and these flags give it; a stream leaves out a null."""
        settings = self.settings
        told = settings.prompt_tokens_details and settings.dialect is not Dialect.VLLM_V0
        if told and (cached_tokens or settings.version >= (0, 24)) and "null_details" not in self.faults:
            return {"prompt_tokens_details": {"cached_tokens": cached_tokens}}
        return {} if self.stream and "null_details" not in self.faults else {"prompt_tokens_details": None}


def _prompts(prompt: Any) -> list[list[int]]:  # noqa: ANN401 - JSON
    """Return the prompts of /v1/completions: a text, token ids, or a list of either."""
    several = isinstance(prompt, list) and not isinstance(prompt[0], int)
    tokens = [encode(one) if isinstance(one, str) else list(map(int, one)) for one in (prompt if several else [prompt])]
    if not tokens or not all(tokens):
        raise ValueError("a prompt is empty")
    return tokens


@dataclass(frozen=True)
class Step:
    """One token of one of a call's answers."""

    index: int
    produced: int  # tokens of this answer so far
    text: str
    finish_reason: str | None
    request: Request


def steps_of(call: Call, choose: Callable[[], Rank]) -> Generator[Step]:
    """Generate the answers one after the other, each on a rank that is chosen then."""
    for index, prompt in enumerate(call.prompts):
        slow_by = call.faults.get("slow_first_token", 0.0)
        request = Request(prompt, call.extra, call.read, call.answer_to(prompt), slow_by)
        with closing(choose().generate(request)) as tokens:
            for produced, token in enumerate(tokens, 1):
                text, reason = ("", "stop") if token == END else (chr(token), None)
                yield Step(index, produced, text, "length" if produced == call.limit else reason, request)


def whole(call: Call, steps: Iterator[Step]) -> dict[str, Any]:
    """Return the answer to a call without a stream."""
    taken = list(steps)
    choices = []
    for end in (step for step in taken if step.finish_reason):
        text = "".join(step.text for step in taken if step.index == end.index)
        content = {"message": {"role": "assistant", "content": text}} if call.chat else {"text": text}
        choices.append(_choice(end.index, content, end.finish_reason))
    usage = _usage(call.prompt_tokens, len(taken)) | call.details(taken[-1].request.cached_tokens)
    return call.common | {"choices": choices} | ({"usage": usage} if call.usage else {})


def chunks(call: Call, steps: Iterator[Step]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream as the tokens come. Raise ConnectionAbortedError where it is to break off."""
    produced, cached_tokens = 0, 0
    for step in steps:
        if not produced:
            cached_tokens = step.request.cached_tokens
        produced += 1
        now = {"usage": _usage(len(step.request.prompt), step.produced)} if call.continuous_usage else {}
        if call.chat and step.produced == 1:
            start = {"usage": _usage(len(step.request.prompt), 0)} if call.continuous_usage else {}
            opening = {"delta": {"role": "assistant", "content": ""}}
            yield call.common | {"choices": [_choice(step.index, opening, None)]} | start
        content = {"delta": {"content": step.text}} if call.chat else {"text": step.text}
        yield call.common | {"choices": [_choice(step.index, content, step.finish_reason)]} | now
        if "truncated_stream" in call.faults:
            raise ConnectionAbortedError
    if call.usage:
        usage = _usage(call.prompt_tokens, produced) | call.details(cached_tokens)
        yield call.common | {"choices": [], "usage": usage}


def _choice(index: int, content: dict[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": index, **content, "logprobs": None, "finish_reason": reason}


def _usage(prompt_tokens: int, produced: int) -> dict[str, Any]:
    total = prompt_tokens + produced
    return {"prompt_tokens": prompt_tokens, "total_tokens": total, "completion_tokens": produced}
