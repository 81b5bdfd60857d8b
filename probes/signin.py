"""Whether a redirect or a web page leads to a sign-in instead of the API. Pure."""

import re
from html import unescape
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from probes.outcome import Place

MAX_PAGE: Final = 8192  # characters of a web page that are looked at
PLACE: Final = re.compile(
    r"log[_-]?[io]n|sign[_-]?[io]n|oauth|openid|saml|authorize|\b(?:sso|auth[nz]?|adfs|cas|idp)\b"
    r"|auth0|okta|keycloak|authelia|authentik|cloudflareaccess|sessions?/new",
    re.IGNORECASE,
)
# Names in a query that say who asks, or where to return to: an API has no need of them. Written without "_".
RETURNS: Final = {
    "clientid",
    "responsetype",
    "redirecturi",
    "redirecturl",
    "redirect",
    "rd",
    "returnto",
    "returnurl",
    "samlrequest",
    "wtrealm",
    "wreply",
    "next",
    "continue",
    "goto",
}
FORM: Final = re.compile(
    r"<title>[^<]*(?:(?:sign|log)[ -]?[io]n\b|登录|登錄|ログイン|로그인|anmeld|connexion|iniciar sesi)"
    r"|type=[\"']?password|/oauth2/|name=[\"']?(?:saml(?:request|response)|wresult|id_token)\b",
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
    r"|(?:must|need to) (?:be (?:logg|sign)ed|log|sign) in|login required|not (?:logged|signed) in"
    r"|<h[1-3][^>]*>\s*(?:(?:sign|log)[ -]?in\b|single sign)|请先?登录|未登录|会话已过期",
    re.IGNORECASE,
)


def leads_there(told: SplitResult, place: Place) -> bool:
    """Whether an address is that of a sign-in: by its name, or as it is to send back to what was asked for.

    The name of the host that was asked itself tells nothing.
    """
    host = told.netloc.rpartition("@")[2]
    query = {name.lower().replace("_", ""): value for name, value in parse_qsl(told.query, keep_blank_values=True)}
    if PLACE.search(f"{'' if host == place.host else host}{told.path}") or RETURNS & query.keys():
        return True
    return any(urlsplit(place.url).path in value for value in query.values())


def is_page(body: str, place: Place, *, of_success: bool) -> bool:
    """Whether a page asks to sign in, or goes to one that does; mere words tell only where no status says it."""
    page = body[:MAX_PAGE]
    if FORM.search(page) or (of_success and WORDS.search(page)):
        return True
    return any(_leads_there(unescape(found[1]), place) for found in GOES.finditer(page))


def _leads_there(url: str, place: Place) -> bool:
    try:
        return leads_there(urlsplit(url), place)
    except ValueError:
        return False
