"""The encodings in which a service may repeat a secret."""

import base64
import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import msgspec

ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "an address": quote,
    "an address without slashes": lambda text: quote(text, safe=""),
    "an address in lower case": lambda text: re.sub("%..", lambda code: code[0].lower(), quote(text, safe="")),
    "a form": quote_plus,
    "json": json.dumps,
    "json in utf-8": lambda text: msgspec.json.encode(text).decode(),
    "json of php": lambda text: json.dumps(text).replace("/", "\\/"),
    "html": html.escape,
    "html without quotes": lambda text: html.escape(text, quote=False),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 in addresses": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
}
