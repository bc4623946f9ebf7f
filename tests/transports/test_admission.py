"""Who the sender of a request is taken for before it has shown credentials."""

from deltamcp import DeltaServer
from deltamcp.transports.admission import Admission


def make_admission() -> Admission:
    return Admission(DeltaServer("x").engine, None, (), False)


def locate(admission: Admission, host: str) -> tuple[str, object]:
    _, _, (address, caller) = admission.begin({"client": (host, 5000)}, {})
    return address, caller


def test_senders_are_made_once_for_each_host_and_few_are_kept() -> None:
    admission = make_admission()
    assert locate(admission, "10.0.0.1")[1] is locate(admission, "10.0.0.1")[1]
    for number in range(20_000):
        locate(admission, f"10.0.{number // 256}.{number % 256}")
    assert admission._kept_sender.cache_info().currsize <= 4096


def test_a_host_of_any_length_is_not_kept() -> None:
    admission = make_admission()
    locate(admission, "1" * 100_000)
    assert admission._kept_sender.cache_info().currsize == 0


def test_hosts_of_one_ipv6_network_are_one_sender() -> None:
    admission = make_admission()
    assert locate(admission, "2001:db8:1:2::3") == locate(admission, "2001:db8:1:2::4")
    assert locate(admission, "2001:db8:1:2::3")[0] == "2001:db8:1:2::/64"
