"""Whether a redirect or a web page leads to a sign-in instead of the API. Pure."""

import re
from html import unescape
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

MAX_PAGE: Final = 8192  # characters of a web page that are looked at
PLACE: Final = re.compile(
    r"log[_-]?[io]n|sign[_-]?[io]n|oauth|openid|saml|authorize|\b(?:sso|auth[nz]?|adfs|cas|idp)\b"
    r"|auth0|okta|keycloak|authelia|authentik|cloudflareaccess",
    re.IGNORECASE,
)
# Names in a query that say where to return to, or who asks: an API has no need of them.
RETURNS: Final = {
    "client_id",
    "redirect_uri",
    "redirect_url",
    "rd",
    "return_to",
    "returnto",
    "returnurl",
    "return_url",
    "samlrequest",
    "wtrealm",
    "wreply",
    "next",
    "continue",
}
FORM: Final = re.compile(
    r"<title>[^<]*(?:(?:sign|log)[ -]?[io]n\b|登录|登錄|ログイン|로그인|anmeld|connexion|iniciar sesi)"
    r"|type=[\"']?password|/oauth2/|name=[\"']?(?:saml(?:request|response)|wresult)\b",
    re.IGNORECASE,
)
GOES: Final = re.compile(
    r"(?:\burl=|\blocation(?:\.href)?\s*=|\blocation\.(?:replace|assign)\(|<form[^>]{0,500}?\baction=)"
    r"\s*[\"']?([^\"'\s>]+)",
    re.IGNORECASE,
)
WORDS: Final = re.compile(
    r"<title>[^<]*\b(?:sso\b|authenti)|authentication (?:is )?required|session (?:has |is )?(?:expired|timed out)"
    r"|please (?:authenticate|(?:log|sign)[ -]?in)|(?:log|sign) in (?:again|to continue|to your)"
    r"|(?:must|need to) (?:be (?:logg|sign)ed|log|sign) in|login required|请先?登录|未登录|会话已过期",
    re.IGNORECASE,
)


def leads_there(told: SplitResult, host: str) -> bool:
    """Whether an address is that of a sign-in; the name of the host that sent it tells nothing."""
    elsewhere = told.netloc.rpartition("@")[2]
    asked = {name.lower() for name, _ in parse_qsl(told.query, keep_blank_values=True)}
    named = PLACE.search(f"{'' if elsewhere == host else elsewhere}{told.path}")
    return bool(named or asked & RETURNS)


def is_page(body: str, host: str, *, of_success: bool) -> bool:
    """Whether a page asks to sign in, or goes to one that does; mere words tell only where no status says it."""
    page = body[:MAX_PAGE]
    if FORM.search(page) or (of_success and WORDS.search(page)):
        return True
    return any(_leads_there(unescape(found[1]), host) for found in GOES.finditer(page))


def _leads_there(url: str, host: str) -> bool:
    try:
        return leads_there(urlsplit(url), host)
    except ValueError:
        return False
