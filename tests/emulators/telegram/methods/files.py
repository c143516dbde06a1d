"""sendPhoto, sendDocument, sendMediaGroup, getFile."""

from __future__ import annotations

from typing import Any

from tests.emulators.telegram.errors import bad_request
from tests.emulators.telegram.media import MAX_DOWNLOAD, describe, received_file
from tests.emulators.telegram.methods.parameters import post, read_formatted, read_target
from tests.emulators.telegram.request_forms import RequestForm, read_keyboard
from tests.emulators.telegram.state import TelegramState
from tests.emulators.telegram.texts import MAX_CAPTION, check_text

Json = dict[str, Any]


async def send_photo(world: TelegramState, form: RequestForm) -> Any:
    return _send_one(world, form, "photo")


async def send_document(world: TelegramState, form: RequestForm) -> Any:
    return _send_one(world, form, "document")


async def send_media_group(world: TelegramState, form: RequestForm) -> Any:
    """2 to 10 photos, or 2 to 10 documents; all or nothing."""
    items = form.data("media", "media")
    if not isinstance(items, list) or not 2 <= len(items) <= 10:
        raise bad_request("wrong number of items in the media group: it must be 2-10")
    kinds = {str(item.get("type")) for item in items}
    if not kinds <= {"photo", "document"} or len(kinds) > 1:
        raise bad_request("can't use the media of the specified type in the album")
    target = read_target(world, form)
    album = f"album{world.next_id()}"
    prepared = [_prepare(world, form, item) for item in items]
    posted = [
        post(world, target, caption, entities, [], media=media, upload=upload, album=album)
        for media, upload, caption, entities in prepared
    ]
    return [message.as_json() for message in posted]


async def get_file(world: TelegramState, form: RequestForm) -> Any:
    stored = world.file(form.text("file_id"))
    size = len(stored.upload.content)
    if size > MAX_DOWNLOAD:
        raise bad_request("file is too big")
    return {
        "file_id": stored.id,
        "file_unique_id": stored.unique_id,
        "file_size": size,
        "file_path": stored.path,
    }


def _send_one(world: TelegramState, form: RequestForm, kind: str) -> Json:
    caption, entities = read_formatted(form, "caption", MAX_CAPTION)
    keyboard = read_keyboard(form)
    target = read_target(world, form)
    stored = received_file(world, form, form.text(kind), kind, kind)
    return post(
        world,
        target,
        caption,
        entities,
        keyboard,
        media=describe(stored, kind),
        upload=stored.upload,
    ).as_json()


def _prepare(
    world: TelegramState, form: RequestForm, item: Json
) -> tuple[Json, Any, str, list[Json]]:
    kind = str(item["type"])
    stored = received_file(world, form, str(item.get("media", "")), "", kind)
    given = item.get("caption_entities") or []
    caption, entities = check_text(str(item.get("caption", "")), given, MAX_CAPTION)
    return describe(stored, kind), stored.upload, caption, entities
