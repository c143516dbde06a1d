from __future__ import annotations

from tests.handlers.desk import Desk, text_of


async def test_an_import_says_which_lines_were_not_read_and_why_and_that_it_works_on_it() -> None:
    desk = Desk()

    reply = await desk.deliver(desk.row(desk.message("/memory import")), ("files/a.jsonl",))

    assert "3, 8 (no text)" in text_of(reply)
    assert "5 (not JSON)" in text_of(reply)
    assert [said for _, said in desk.world.post.streamed] == ["⏳ Reading it in: 100 of 200"]
