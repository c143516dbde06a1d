"""A start in the middle of what a death has left: letters may be due, and files be asked for,
before the transport is told to start."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bot.transports.feishu.transport import FeishuTransport
from bot.transports.ports import DeliveryError
from storage.records.messages import AttachmentKind, RemoteFile
from storage.records.people import Channel
from tests.bot.transports.feishu.builders import InstantSleep
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.fakes.inbox import FakeInbox

_GONE = RemoteFile(
    kind=AttachmentKind.FILE,
    reference={"message_id": "om_1", "key": "file_v3_1", "type": "file"},
    name="gone.txt",
)


async def test_it_starts_although_it_has_been_used_before(
    fs: FeishuEmulator, tmp_path: Path
) -> None:
    transport = FeishuTransport(
        app_id=fs.app_id,
        app_secret=fs.app_secret,
        domain=fs.domain,
        inbox=FakeInbox(Channel.FEISHU, "Paused"),
        home=tmp_path,
        on_call=lambda: None,
        sleep=InstantSleep(),
        jitter=lambda: 0.5,
    )
    with pytest.raises(DeliveryError):
        await transport.fetch(_GONE, tmp_path)

    async with AsyncExitStack() as stack:
        await transport.start(stack)
        with pytest.raises(DeliveryError):
            await transport.fetch(_GONE, tmp_path)
