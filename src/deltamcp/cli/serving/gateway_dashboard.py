"""What a gateway that the command line runs shows of itself: a socket for other commands, and pages where asked for."""

import functools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltamcp.dashboard.api import GatewayApi
    from deltamcp.gateway.gateway import Gateway


def show_gateway(gateway: "Gateway", label: str) -> None:
    """Has a gateway answer other programs of its user while it runs."""
    from deltamcp.dashboard.gateway_socket import gateway_socket

    began = time.time()

    @functools.cache
    def make_api() -> "GatewayApi":
        from deltamcp.dashboard.api import GatewayApi  # imported when somebody looks

        return GatewayApi(gateway, label, began)

    gateway.beside.append(functools.partial(gateway_socket, make_api))
