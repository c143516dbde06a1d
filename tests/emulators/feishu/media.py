"""im/v1: images, files and what people sent."""

from __future__ import annotations

from urllib.parse import quote

from tests.emulators.feishu.faults import ApiError
from tests.emulators.feishu.wire import HttpRequest, HttpResponse
from tests.emulators.feishu.world import Blob, World

MAX_IMAGE = 10 * 1024 * 1024
MAX_FILE = 30 * 1024 * 1024
MAX_RESOURCE = 100 * 1024 * 1024
FILE_TYPES = {"opus", "mp4", "pdf", "doc", "xls", "ppt", "stream"}
_MAGIC = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


class Media:
    def __init__(self, world: World) -> None:
        self._world = world
        self.own: set[str] = set()

    def upload_image(self, request: HttpRequest) -> dict[str, str]:
        form = request.form()
        kind = form["image_type"].data.decode() if "image_type" in form else ""
        if kind not in ("message", "avatar") or "image" not in form:
            raise ApiError(234001, "Invalid request param.")
        data = form["image"].data
        _check_size(data, MAX_IMAGE)
        mime = next((mime for magic, mime in _MAGIC.items() if data.startswith(magic)), None)
        if mime is None:
            raise ApiError(234011, "Can't recognize the image format.")
        key = self._world.new_id("img_v3_")
        self._world.images[key] = Blob(data=data, name="image", kind=mime)
        self.own.add(key)
        return {"image_key": key}

    def upload_file(self, request: HttpRequest) -> dict[str, str]:
        form = request.form()
        kind = form["file_type"].data.decode() if "file_type" in form else ""
        if kind not in FILE_TYPES or "file" not in form or "file_name" not in form:
            raise ApiError(234001, "Invalid request param.")
        data = form["file"].data
        _check_size(data, MAX_FILE)
        key = self._world.new_id("file_v3_")
        name = form["file_name"].data.decode("utf-8", "replace")
        self._world.files[key] = Blob(data=data, name=name, kind=kind)
        self.own.add(key)
        return {"file_key": key}

    def image(self, key: str) -> HttpResponse:
        if key not in self.own:
            raise ApiError(234009, "The image can only be downloaded by the app that uploaded it")
        return _download(self._world.images[key])

    def resource(self, message_id: str, key: str, kind: str) -> HttpResponse:
        message = self._world.messages.get(message_id)
        if kind not in ("image", "file"):
            raise ApiError(234001, "Invalid request param.")
        if message is None or message.recalled or key not in message.content:
            raise ApiError(234003, "File not in msg.")
        if message.msg_type == "interactive":
            raise ApiError(234043, "Unsupported message type.")
        blob = (self._world.images if kind == "image" else self._world.files).get(key)
        if blob is None:
            raise ApiError(234003, "File not in msg.")
        if len(blob.data) > MAX_RESOURCE:
            raise ApiError(234037, "Downloaded file size exceeds limit.")
        return _download(blob)


def _check_size(data: bytes, limit: int) -> None:
    if not data:
        raise ApiError(234010, "File's size can't be 0.")
    if len(data) > limit:
        raise ApiError(234006, "The file size exceed the max value.")


def _download(blob: Blob) -> HttpResponse:
    return HttpResponse(
        body=blob.data,
        headers={
            "content-type": blob.kind if "/" in blob.kind else "application/octet-stream",
            "content-disposition": f"attachment; filename*=UTF-8''{quote(blob.name)}",
        },
    )
