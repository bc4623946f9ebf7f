"""What event streams store: bounded in events and in bytes, of a session and of an account."""

from hypothesis import given
from hypothesis import strategies as st

from deltamcp import Limits
from deltamcp.runtime.quota import Quota
from deltamcp.transports.sessions.streams import SessionStreams, SubscriptionStream

MB = 1024 * 1024


def stored_bytes(streams: SessionStreams) -> int:
    return sum(len(event) for stream in (streams._streams or {}).values() for _, event in stream.events_after(0))


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([10, 10_000, 300_000, 2_000_000])), max_size=40))
def test_a_session_stores_a_mebibyte_and_its_account_the_share(appended):
    quota = Quota(3 * MB, 0.5)
    sessions = [SessionStreams(Limits(), quota, "a") for _ in range(3)]
    for number, size in appended:
        streams = sessions[number % 3]
        stream = streams.open()
        stream.append(b"x" * size)
        if number > 2:
            stream.end()
        assert all(stored_bytes(one) <= MB for one in sessions)
        assert sum(map(stored_bytes, sessions)) <= 1.5 * MB
        assert sum(map(stored_bytes, sessions)) == quota._held.get("a", 0)
    for one in sessions:
        one.close()
    assert not quota._held


def test_finished_streams_are_forgotten_before_events_of_the_open_one():
    streams = SessionStreams(Limits(), Quota(64 * MB, 1), "a")
    old = streams.open()
    old.append(b"x" * 600_000)
    old.end()
    new = streams.open()
    new.append(b"y" * 300_000)
    new.append(b"z" * 600_000)
    assert streams.resume(old.event_id(0)) is None
    assert [number for number, _ in new.events_after(0)] == [1, 2]


def test_a_response_that_cannot_be_stored_is_replaced_for_a_client_that_reconnects():
    streams = SessionStreams(Limits(), Quota(64 * MB, 1), "a")
    stream = streams.open()
    sent = stream.append(b"x" * 2 * MB, b"call again")
    assert len(sent) > 2 * MB, "the client that is connected gets it whole"
    ((number, event),) = stream.events_after(0)
    assert (number, b"data: call again\n" in event) == (1, True)


def test_a_closed_session_stores_nothing_more():
    quota = Quota(64 * MB, 1)
    streams = SessionStreams(Limits(), quota, "a")
    stream = streams.open()
    stream.append(b"x")
    streams.close()
    stream.append(b"y")
    assert not quota._held
    assert stream.ended


def test_a_subscription_that_is_not_read_ends_at_a_bound_in_bytes_and_gives_them_back():
    quota = Quota(64 * MB, 1)
    stream = SubscriptionStream(Limits(unsent_bytes=1_000), quota, "a")
    for _ in range(100):
        stream.append(b"x" * 200)
    assert stream.ended
    assert sum(len(event) for _, event in stream.events_after(0)) <= 1_000
    assert not quota._held


def test_the_subscriptions_of_an_account_are_bounded_together():
    quota = Quota(8_000, 1 / 8)
    streams = [SubscriptionStream(Limits(), quota, "a") for _ in range(100)]
    for stream in streams:
        stream.append(b"x" * 100)
    kept = [stream for stream in streams if not stream.ended]
    assert 0 < len(kept) <= 1_000 // 100
    for stream in streams:
        stream.forget()
    assert not quota._held
