"""What a server says of an error, in its status and in its words -> the class of the failure. Pure.

The words are those of vLLM, SGLang, llama.cpp, TGI, Ollama, and of the gateways and providers before such engines.
"""

import re
from typing import Final

from probes.fault import Fault
from probes.outcome import ErrorClass

MODEL_CODE: Final = re.compile(
    r"model_?not_?(?:found|exist|supported|available)|invalid_?model\b|unknown_?model\b|deploymentnotfound"
    r"|model_access_denied|无可用渠道|可用渠道不存在|no available channel"  # one-api: no one serves this model
)
MODEL_DENIED: Final = re.compile(
    r"access (?:to )?(?:the )?model\b|\bmodel access denied|无权(?:使用|访问).{0,10}模型|模型.{0,40}无权"
)
MODEL_MISSING: Final = re.compile(
    r"(?:unknown|invalid|unsupported|no such)[ _]model(?:\b|_)|\bnot a (?:valid|known|supported) model\b"
    r"|(?<![/\w])(?:models?|deployments?|adapters?)\b.{0,150}\b(?:(?:does )?not exist|not found|could not be found"
    r"|not configured|not deployed|not in the list|decommissioned|deprecated)"
    r"|\bmodel(?: (?:id|name|identifier))?(?: \S+)? is (?:invalid|unknown|not (?:valid|available|supported|loaded))"
    r"|not found (?:the )?model\b|could not find (?:\w+ ){0,2}model|no models? (?:is |are )?loaded"
    r"|no endpoints found for|no healthy deployments"
    r"|not_?found\w* .{0,40}\bmodel: "  # Anthropic's "model: x", of the type not_found_error
    r"|模型.{0,40}(?:不存在|未找到|找不到)|(?:不存在|未找到|找不到|没有找到|不支持).{0,10}模型"
)
# "context length exceeded" alone, without a number or a code, is not among them: it may be about anything.
CONTEXT: Final = re.compile(
    r"context_length_exceeded|exceed_context_size|max_model_len|context[ _](?:window|size|limit)|context.{0,10}overflow"
    r"|maximum (?:(?:allowed|input|model|context|prompt|sequence) )+(?:token )?length|context length (?:is|of) "
    r"|\b(?:prompt|inputs?|context|tokens?|sequence|request)\b.{0,80}\b(?:exceeds?|(?:greater|longer|larger) than)\b"
    r".{0,60}\b(?:length|len|max\w*|limit|window|context|size)"
    r"|\b(?:prompt|input|request|messages?)\b.{0,60}\b(?:is|are) too (?:long|large)|too many tokens"
    r"|max_\w*tokens\b.{0,60}\bgot (?:-|0\b)"  # what the prompt leaves of the context
    r"|must have less than [0-9]+ tokens|`inputs` tokens \+|reduce the length of|range of input length"
    r"|(?:prompt|输入|上下文).{0,20}(?:超长|过长|超过|超出)"
)
LIMIT: Final = r"(?:key|spending|usage|rate|daily|weekly|monthly|hard) limit"
QUOTA: Final = re.compile(
    r"insufficient[_ ](?:\w+[_ ])?(?:quota|balance|credits?|funds)|(?:budget|quota|rate_limit)_exceeded|arrearage"
    rf"|(?:quota|budget|credits?|balance|free tier|{LIMIT})\b.{{0,40}}"
    r"\b(?:exceeded|exhausted|insufficient|reached|used up|depleted|not enough|too low)"
    r"|(?:exceeded|exhausted|reached|out of|over|used all|any|no remaining)[ _](?:\w+[ _]){0,4}"
    rf"(?:quota|budget|credits?|{LIMIT})\b"
    r"|payment required|billing_not_active|额度|余额|欠费"
)
KEY: Final = re.compile(
    r"(?:invalid|incorrect|missing|malformed|no|wrong)[ _](?:or invalid )?"
    r"(?:api[ _-]?key|authorization|(?:access|auth|bearer|api) token|credential)"
    r"|api[ _]?key[ _](?:is )?(?:not valid|not found|expired|invalid|missing|required)"
    r"|authentication[ _]?(?:error|failed)|\bunauthenticated|\bunauthori[sz]ed\b|无效的?(?:令牌|密钥)|(?:令牌|密钥)无效"
)
OAUTH: Final = re.compile(
    r"\boauth|authorization_uri|resource_metadata|error_description|invalid_(?:token|grant|client)|insufficient_scope|\bscope="
)
URL: Final = re.compile(r"\b(?:invalid|unknown) (?:request )?url\b|\bno route\b|\broute not found")
PLAIN_TO_TLS: Final = re.compile(
    r"http request (?:was sent )?to (?:an )?https|plain http to an (?:ssl|tls)|requires (?:tls|ssl|https)\b"
    r"|\b(?:tls|ssl|https) (?:is )?required|use the https scheme"
)


ASKED: Final = {400, 404, 422}  # the request itself is at fault
# The first that fits counts.
RULES: Final = (
    (range(400, 600), MODEL_CODE, ErrorClass.UNKNOWN_MODEL),
    (range(400, 500), MODEL_DENIED, ErrorClass.UNKNOWN_MODEL),
    ({400, 422}, CONTEXT, ErrorClass.CONTEXT_TOO_LONG),
    (range(400, 500), QUOTA, ErrorClass.RATE_LIMITED),
    ({400}, KEY, ErrorClass.AUTH),
    (ASKED, MODEL_MISSING, ErrorClass.UNKNOWN_MODEL),
    ({400}, URL, ErrorClass.BASE_URL),
)
BY_STATUS: Final = {
    401: ErrorClass.AUTH,
    402: ErrorClass.RATE_LIMITED,
    403: ErrorClass.AUTH,
    404: ErrorClass.BASE_URL,
    405: ErrorClass.BASE_URL,
    408: ErrorClass.TIMEOUT_TOTAL,
    413: ErrorClass.CONTEXT_TOO_LONG,
    421: ErrorClass.BASE_URL,
    429: ErrorClass.RATE_LIMITED,
}


def class_of(status: int, fault: Fault, everything: str) -> ErrorClass:
    """Return the class of an error with a status from 400; `everything` has body and challenge, in lower case."""
    kind = next((kind for statuses, words, kind in RULES if status in statuses and words.search(fault.said)), None)
    if kind is None and status in ASKED and "model" in fault.fields:
        kind = ErrorClass.UNKNOWN_MODEL
    elif kind is None and PLAIN_TO_TLS.search(everything):
        kind = ErrorClass.TLS
    kind = kind or BY_STATUS.get(status, ErrorClass.SERVER_ERROR if status >= 500 else ErrorClass.BAD_REQUEST)  # noqa: PLR2004
    return ErrorClass.OAUTH if kind is ErrorClass.AUTH and OAUTH.search(everything) else kind
