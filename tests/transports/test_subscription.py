"""What a subscription keeps of the request that opened it."""

from deltamcp.transports.sessions.session import Subscription
from deltamcp.values import LOCAL, Filter, Request


def test_a_subscription_does_not_keep_the_parameters_of_its_request():
    request = Request(1, "subscriptions/listen", {"_meta": {"x": "y" * 4_000_000}})
    subscription = Subscription(None, request, "2026-07-28", Filter(), lambda message: None, LOCAL)  # type: ignore[arg-type]
    assert subscription._request == Request(1, "subscriptions/listen", {})
