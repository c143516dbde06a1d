"""Frames are read and written as the SDK does it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.transports.feishu.long_connection import (
    FeishuFrameError,
    encode_ack,
    encode_ping,
    parse_frame,
)
from tests.emulators.feishu.long_connection import Frame

TEXT = st.text(max_size=30)
NUMBER = st.integers(0, 2**64 - 1)


@given(
    log=NUMBER,
    service=st.integers(-(2**31), 2**31 - 1),
    method=st.integers(0, 1),
    headers=st.dictionaries(TEXT, TEXT, max_size=5),
    payload=st.binary(max_size=300),
    others=st.none() | st.tuples(TEXT, TEXT, TEXT),
)
def test_what_the_sdk_writes_is_read_and_the_other_way_round(  # noqa: PLR0917 - drawn by name
    log: int,
    service: int,
    method: int,
    headers: dict[str, str],
    payload: bytes,
    others: tuple[str, str, str] | None,
) -> None:
    written = Frame(SeqID=7, LogID=log, service=service, method=method, payload=payload)
    for key, value in headers.items():
        written.headers.add(key=key, value=value)
    if others is not None:
        written.payload_encoding, written.payload_type, written.LogIDNew = others

    frame = parse_frame(written.SerializeToString())
    back = Frame()
    back.ParseFromString(encode_ack(frame, {"toast": "已收到"}, code=200, took_ms=5))

    assert (frame.headers, frame.payload, frame.is_data) == (headers, payload, method == 1)
    assert (back.SeqID, back.LogID, back.service, back.method) == (7, log, service, method)
    assert {each.key: each.value for each in back.headers} == {**headers, "biz_rt": "5"}
    assert json.loads(back.payload)["code"] == 200
    if others is not None:
        assert (back.payload_encoding, back.payload_type, back.LogIDNew) == others


def test_a_ping_is_one_to_the_sdk() -> None:
    ping = Frame()
    ping.ParseFromString(encode_ping(33554678))

    assert (ping.service, ping.method) == (33554678, 0)
    assert [(each.key, each.value) for each in ping.headers] == [("type", "ping")]


@given(st.binary(max_size=60))
def test_rubbish_is_refused_or_read_but_never_fails_otherwise(data: bytes) -> None:
    try:
        parse_frame(data)
    except FeishuFrameError:
        return


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_frame_that_is_cut_off_is_refused(cut: int) -> None:
    whole = encode_ping(33554678)
    assert len(whole) > 24
    try:
        frame = parse_frame(whole[:-cut])
    except FeishuFrameError:
        return
    assert frame.headers == {}, "cut between two fields"
