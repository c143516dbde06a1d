"""Draws the heat map of hours and the cost chart as PNG pictures, with nothing but the standard
library: the few characters they need are drawn from bitmaps."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from cards import formats
from storage.records.autonomy import DayFigures, HeatMap
from storage.records.people import Language

# A picture has its own background, so that it reads the same in light and dark chats.
_PALETTE = (
    (255, 255, 255),
    (32, 36, 42),
    (98, 103, 110),
    (238, 240, 242),
    (198, 219, 239),
    (133, 178, 217),
    (62, 127, 188),
    (16, 74, 138),
)
_PAPER, _INK, _SOFT, _EMPTY = range(4)
_SHADES = (4, 5, 6, 7)
_BAR = 6

_CELL_WIDTH, _CELL_HEIGHT, _GAP = 40, 46, 4
_MARGIN = 20
_SCALE = 5
"""Pixels for each dot of a character: readable where a phone shows the picture at a third."""
_BAR_WIDTH, _CHART_HEIGHT = 32, 260

_GLYPH_HEIGHT = 7
_GLYPHS = {
    "0": "01110 10001 10011 10101 11001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "3": "11110 00001 00001 01110 00001 00001 11110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
    "$": "00100 01111 10100 01110 00101 11110 00100",
    ".": "00000 00000 00000 00000 00000 01100 01100",
    "-": "00000 00000 00000 11111 00000 00000 00000",
    ",": "00000 00000 00000 00000 00100 00100 01000",
    "M": "10001 11011 10101 10101 10001 10001 10001",
    "T": "11111 00100 00100 00100 00100 00100 00100",
    "W": "10001 10001 10001 10101 10101 11011 10001",
    "F": "11111 10000 10000 11110 10000 10000 10000",
    "S": "01111 10000 10000 01110 00001 00001 11110",
    "a": "00000 00000 01110 00001 01111 10001 01111",
    "d": "00001 00001 01101 10011 10001 10011 01101",
    "e": "00000 00000 01110 10001 11111 10000 01110",
    "h": "10000 10000 10110 11001 10001 10001 10001",
    "i": "00100 00000 01100 00100 00100 00100 01110",
    "n": "00000 00000 10110 11001 10001 10001 10001",
    "o": "00000 00000 01110 10001 10001 10001 01110",
    "r": "00000 00000 10110 11001 10000 10000 10000",
    "t": "01000 01000 11100 01000 01000 01001 00110",
    "u": "00000 00000 10001 10001 10001 10011 01101",
    " ": "00000 00000 00000 00000 00000 00000 00000",
    "一": "000000000 000000000 000000000 111111111 000000000 000000000 000000000",
    "二": "000000000 011111110 000000000 000000000 000000000 111111111 000000000",
    "三": "011111110 000000000 000000000 001111100 000000000 000000000 111111111",
    "四": "111111111 100101001 100101001 100101111 101000001 110000001 111111111",
    "五": "011111110 000100000 000100000 011111100 001000100 001000100 111111111",
    "六": "000010000 000000000 111111111 000000000 001001000 010000100 100000010",
    "日": "011111110 010000010 010000010 011111110 010000010 010000010 011111110",
}
_WEEKDAYS = {
    Language.ENGLISH: ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    Language.CHINESE: ("一", "二", "三", "四", "五", "六", "日"),
}


class Canvas:
    """A picture of `width` times `height` pixels with the colours of the palette by number."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._rows = [bytearray([_PAPER]) * width for _ in range(height)]

    def fill(self, x: int, y: int, width: int, height: int, colour: int) -> None:
        left, right = max(0, x), min(self.width, x + width)
        if right <= left:
            return
        line = bytes([colour]) * (right - left)
        for row in self._rows[max(0, y) : max(0, y + height)]:
            row[left:right] = line

    def write(self, text: str, x: int, y: int, colour: int = _INK) -> None:
        """Draw text; characters without a bitmap are left out."""
        for char in text:
            rows = _GLYPHS.get(char, _GLYPHS[" "]).split()
            for down, dots in enumerate(rows):
                for across, dot in enumerate(dots):
                    if dot == "1":
                        self.fill(x + across * _SCALE, y + down * _SCALE, _SCALE, _SCALE, colour)
            x += (len(rows[0]) + 1) * _SCALE

    def pixel(self, x: int, y: int) -> tuple[int, int, int]:
        return _PALETTE[self._rows[y][x]]

    def png(self) -> bytes:
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 3, 0, 0, 0)
        lines = b"".join(b"\x00" + row for row in self._rows)
        return b"".join(
            (
                b"\x89PNG\r\n\x1a\n",
                _chunk(b"IHDR", header),
                _chunk(b"PLTE", bytes(value for colour in _PALETTE for value in colour)),
                _chunk(b"IDAT", zlib.compress(lines, 9)),
                _chunk(b"IEND", b""),
            )
        )


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)


def text_width(text: str) -> int:
    """In pixels, without the gap after it."""
    dots = [len(_GLYPHS.get(char, _GLYPHS[" "]).split()[0]) + 1 for char in text]
    return max(0, sum(dots) - 1) * _SCALE


def draw_heat_map(heat: HeatMap, language: Language) -> Canvas:
    """Weekdays below each other, hours from 0 to 23 beside each other; darker is more."""
    names = _WEEKDAYS[language]
    left = _MARGIN + max(map(text_width, names)) + _MARGIN
    text_height = _GLYPH_HEIGHT * _SCALE
    top = _MARGIN + text_height + _MARGIN // 2
    canvas = Canvas(
        left + 24 * (_CELL_WIDTH + _GAP) + _MARGIN, top + 7 * (_CELL_HEIGHT + _GAP) + _MARGIN
    )
    for hour in range(0, 24, 3):
        canvas.write(str(hour), left + hour * (_CELL_WIDTH + _GAP), _MARGIN, _SOFT)
    most = max(map(max, heat))
    for weekday, counts in enumerate(heat):
        y = top + weekday * (_CELL_HEIGHT + _GAP)
        canvas.write(names[weekday], _MARGIN, y + (_CELL_HEIGHT - text_height) // 2)
        for hour, count in enumerate(counts):
            x = left + hour * (_CELL_WIDTH + _GAP)
            canvas.fill(x, y, _CELL_WIDTH, _CELL_HEIGHT, shade(count, most))
    return canvas


def shade(count: int, most: int) -> int:
    """The color step of a count: none for 0, else one of four equal ranges up to the highest."""
    if not count:
        return _EMPTY
    return _SHADES[min(len(_SHADES) - 1, (count * len(_SHADES) - 1) // most)]


def draw_cost_chart(days: Sequence[DayFigures]) -> Canvas:
    """A bar for the cost of each day, the dates of some below; the highest has its amount."""
    text_height = _GLYPH_HEIGHT * _SCALE
    top = _MARGIN + text_height + _MARGIN // 2
    bottom = top + _CHART_HEIGHT
    bar_step = _BAR_WIDTH + _GAP
    # Room for a label before the first bar and after the last one.
    side = _MARGIN + text_width("00-00") // 2
    canvas = Canvas(2 * side + len(days) * bar_step, bottom + text_height + 2 * _MARGIN)
    most = max((each.micros for each in days), default=0) or 1
    highest = max(range(len(days)), key=lambda n: days[n].micros)
    for number, each in enumerate(days):
        x = side + number * bar_step
        height = max(3 if each.micros else 0, _CHART_HEIGHT * each.micros // most)
        canvas.fill(x, bottom - height, _BAR_WIDTH, height, _BAR)
        if (len(days) - 1 - number) % 7 == 0:
            _write_centred(canvas, f"{each.day:%m-%d}", x + _BAR_WIDTH // 2, bottom + _MARGIN)
    canvas.fill(side, bottom, len(days) * bar_step, 3, _SOFT)
    middle = side + highest * bar_step + _BAR_WIDTH // 2
    _write_centred(canvas, formats.money(days[highest].micros), middle, _MARGIN)
    return canvas


def _write_centred(canvas: Canvas, text: str, middle: int, y: int) -> None:
    width = text_width(text)
    x = min(max(_MARGIN // 2, middle - width // 2), canvas.width - width - _MARGIN // 2)
    canvas.write(text, x, y)
