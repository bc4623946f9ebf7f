"""Metrics: sums of processes, of which some have ended."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltamcp.runtime.metric_values import BUCKETS, Histogram, MetricFolder, MetricValues, Snapshot, total


def snapshot(count: float, seconds: float, gauge: float) -> Snapshot:
    values = MetricValues(lambda: {("held",): gauge})
    values.add(("calls", "a"), count)
    values.histogram(("seconds",)).add(seconds)
    return values.snapshot()


@given(st.floats(min_value=0, max_value=1e6))
def test_a_duration_counts_in_one_bucket(seconds):
    histogram = Histogram()
    histogram.add(seconds)
    [place] = [number for number, count in enumerate(histogram.counts[:-1]) if count]
    assert place == len(BUCKETS) or seconds <= BUCKETS[place]
    assert place == 0 or seconds > BUCKETS[place - 1]
    assert histogram.counts[-1] == seconds


@given(st.lists(st.integers(min_value=0, max_value=1000), min_size=1))
def test_the_total_of_snapshots_is_their_sum(counts):
    summed = total(snapshot(count, 0.002, 2) for count in counts)
    assert summed.counters == [(("calls", "a"), sum(counts))]
    assert summed.gauges == [(("held",), 2 * len(counts))]
    [(_, histogram)] = summed.histograms
    assert sum(histogram[:-1]) == len(counts)
    assert histogram[-1] == pytest.approx(0.002 * len(counts))


def test_what_an_ended_process_counted_stays_and_what_it_held_does_not(tmp_path, monkeypatch):
    folder = MetricFolder(tmp_path)
    for pid in (1, 2, 3):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        folder.write(snapshot(10 * pid, 1, 5))
    before = folder.read_total()
    assert dict(before.counters) == {("calls", "a"): 60} and dict(before.gauges) == {("held",): 15}
    for pid in (1, 3, 3, 99):
        folder.fold(pid)
    after = folder.read_total()
    assert sorted(path.name for path in Path(tmp_path).glob("*.json")) == ["2.json", "ended.json"]
    assert after.counters == before.counters and after.histograms == before.histograms
    assert dict(after.gauges) == {("held",): 5}


def test_a_process_writes_its_snapshot_in_place_of_its_last_one(tmp_path):
    folder = MetricFolder(tmp_path)
    for count in (1, 2, 3):
        folder.write(snapshot(count, 1, 0))
    assert dict(folder.read_total().counters) == {("calls", "a"): 3}
