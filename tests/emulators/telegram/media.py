"""Photos and documents: what may be sent, and how they look in a message."""

from __future__ import annotations

from typing import Any

from tests.emulators.telegram.errors import bad_request
from tests.emulators.telegram.request_forms import RequestForm, UploadedFile
from tests.emulators.telegram.state import StoredFile, TelegramState

Json = dict[str, Any]

MAX_PHOTO = 10 * 1024 * 1024
MAX_DOWNLOAD = 20 * 1024 * 1024
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")


def received_file(
    world: TelegramState, form: RequestForm, value: str, field: str, kind: str
) -> StoredFile:
    """The file a call sends: uploaded with it, or known by its id."""
    name = value.removeprefix("attach://") if value.startswith("attach://") else field
    upload = form.uploads.get(name)
    if upload is None:
        return _known_file(world, value, kind)
    _check_upload(upload, kind)
    return world.store_file(upload, f"{kind}s")


def describe(stored: StoredFile, kind: str) -> Json:
    """The media fields of a message."""
    size = len(stored.upload.content)
    base: Json = {"file_id": stored.id, "file_unique_id": stored.unique_id, "file_size": size}
    if kind == "photo":
        return {"photo": [{**base, "width": 640, "height": 480}]}
    return {"document": {**base, "file_name": stored.upload.name, "mime_type": stored.upload.mime}}


def _known_file(world: TelegramState, value: str, kind: str) -> StoredFile:
    if not value:
        raise bad_request(f"there is no {kind} in the request")
    if value.startswith(("http://", "https://")):
        raise bad_request("failed to get HTTP URL content")
    return world.file(value)


def _check_upload(upload: UploadedFile, kind: str) -> None:
    size = len(upload.content)
    if not size:
        raise bad_request("file must be non-empty")
    if kind != "photo":
        return
    if size > MAX_PHOTO:
        raise bad_request(f"file of size {size} bytes is too big for a photo")
    if not upload.content.startswith(_IMAGES):
        raise bad_request("IMAGE_PROCESS_FAILED")
