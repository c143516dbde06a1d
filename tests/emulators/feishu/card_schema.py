"""Which properties each card JSON 2.0 component knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.emulators.feishu.refusals import CardRefused

if TYPE_CHECKING:
    from tests.emulators.feishu.card_validator import CardWalk

ValueCheck = Callable[["CardWalk", str, Any], None]
FieldChecks = Mapping[str, ValueCheck]

PARSE = 200621
_PIXELS = re.compile(r"^\d{1,2}px$")
_MARGIN = re.compile(r"^-?\d{1,2}px$")
_COLOUR = re.compile(r"^[a-z]+(-\d{2,3})?$|^rgba\([\d., ]+\)$")
_SPACING = re.compile(r"^(small|medium|large|extra_large|\d{1,2}px)$")


def refuse(path: str, problem: str, code: int = PARSE) -> CardRefused:
    return CardRefused(code, f"parse card json err; ErrorValue: {problem}, path: {path}")


def string(walk: CardWalk, path: str, value: Any) -> None:
    if not isinstance(value, str):
        raise refuse(path, "not a string")


def boolean(walk: CardWalk, path: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise refuse(path, "not a boolean")


def only_true(walk: CardWalk, path: str, value: Any) -> None:
    if value is not True:
        raise refuse(path, "only true is supported in schema 2.0")


def anything(walk: CardWalk, path: str, value: Any) -> None:
    """Free-form on purpose."""


def mapping(walk: CardWalk, path: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise refuse(path, "not an object")


def integer(low: int, high: int) -> ValueCheck:
    def check(walk: CardWalk, path: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise refuse(path, f"not an integer in [{low}, {high}]")

    return check


def text_up_to(limit: int) -> ValueCheck:
    def check(walk: CardWalk, path: str, value: Any) -> None:
        string(walk, path, value)
        if len(value) > limit:
            raise refuse(path, f"longer than {limit}")

    return check


def one_of(*choices: str) -> ValueCheck:
    def check(walk: CardWalk, path: str, value: Any) -> None:
        if value not in choices:
            raise refuse(path, f"{value!r} is not one of {choices}")

    return check


def matching(pattern: re.Pattern[str]) -> ValueCheck:
    def check(walk: CardWalk, path: str, value: Any) -> None:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise refuse(path, f"{value!r} has the wrong format")

    return check


def box_sizes(counts: tuple[int, ...], pattern: re.Pattern[str] = _PIXELS) -> ValueCheck:
    """A CSS-like box of so many pixel values."""

    def check(walk: CardWalk, path: str, value: Any) -> None:
        sides = value.split(" ") if isinstance(value, str) else []
        if len(sides) not in counts or not all(pattern.fullmatch(side) for side in sides):
            raise refuse(path, f"{value!r} is not a box of {counts} pixel values")

    return check


padding = box_sizes((1, 2, 4))
strict_padding = box_sizes((1, 4))
margin = box_sizes((1, 2, 4), _MARGIN)
colour = matching(_COLOUR)
spacing = matching(_SPACING)
width = matching(re.compile(r"^(default|fill|auto|weighted|\d+px)$"))
text_size = matching(
    re.compile(
        r"^(heading(-[0-4])?|normal(_v2)?|notation|xxxx-large|xxx-large|xx-large|x-large|large|medium|small|x-small|[a-z_-]+)$"
    )
)
align = one_of("left", "center", "right")
valign = one_of("top", "center", "bottom")
url = matching(re.compile(r"^[a-z][a-z0-9+.-]*:\S+$", re.IGNORECASE))


def shape(fields: FieldChecks, *required: str) -> ValueCheck:
    """An object with these properties and no others."""

    def check(walk: CardWalk, path: str, value: Any) -> None:
        mapping(walk, path, value)
        for key in required:
            if key not in value:
                raise refuse(path, f"missing property {key}")
        for key, inner in value.items():
            if key not in fields:
                raise refuse(path, f"unknown property, property: {key}")
            fields[key](walk, f"{path} -> {key}", inner)

    return check


def listing(check: ValueCheck, *, low: int = 0, high: int = 10_000) -> ValueCheck:
    def inner(walk: CardWalk, path: str, value: Any) -> None:
        if not isinstance(value, list) or not low <= len(value) <= high:
            raise refuse(path, f"not a list of {low} to {high}")
        for index, item in enumerate(value):
            check(walk, f"{path} -> [{index}]", item)

    return inner


TEMPLATES = (
    *("blue", "wathet", "turquoise", "green", "yellow", "orange", "red"),
    *("carmine", "violet", "purple", "indigo", "grey", "default"),
)
TAG_COLOURS = (
    *("neutral", "blue", "turquoise", "lime", "orange", "violet", "indigo"),
    *("wathet", "green", "yellow", "red", "purple", "carmine"),
)


def elements(walk: CardWalk, path: str, value: Any) -> None:
    walk.elements(path, value)


def nested(*tags: str) -> ValueCheck:
    """One component, of one of these kinds."""

    def check(walk: CardWalk, path: str, value: Any) -> None:
        walk.component(path, value, tags)

    return check


def image_key(walk: CardWalk, path: str, value: Any) -> None:
    walk.image_key(path, value)


plain = nested("plain_text")
words = nested("plain_text", "lark_md")
rich = nested("plain_text", "lark_md", "markdown")
icon = nested("standard_icon", "custom_icon")
confirm = shape({"title": plain, "text": plain}, "title", "text")
_ANY_URL = dict.fromkeys(("default_url", "url", "pc_url", "ios_url", "android_url"), url)


def behavior(walk: CardWalk, path: str, value: Any) -> None:
    kinds = {
        "callback": shape({"type": string, "value": mapping}, "type", "value"),
        "open_url": shape({"type": string, **_ANY_URL}, "type", "default_url"),
    }
    mapping(walk, path, value)
    one_of(*kinds)(walk, path, value.get("type"))
    kinds[value["type"]](walk, path, value)


behaviors = listing(behavior, low=1, high=2)
option = shape({"text": plain, "icon": icon, "value": string}, "text", "value")
_LAYOUT: dict[str, ValueCheck] = {
    "direction": one_of("vertical", "horizontal"),
    "padding": padding,
    "vertical_spacing": spacing,
    "vertical_align": valign,
    "horizontal_spacing": spacing,
    "horizontal_align": align,
}
_SELECT: dict[str, ValueCheck] = {
    "type": one_of("default", "text"),
    "name": string,
    "placeholder": plain,
    "width": width,
    "disabled": boolean,
    "required": boolean,
    "behaviors": behaviors,
    "confirm": confirm,
}
_FONT: dict[str, ValueCheck] = {"content": string, "text_size": text_size, "text_align": align}
_TABLE_COLUMN = shape(
    {
        "name": string,
        "display_name": string,
        "width": anything,
        "data_type": one_of("text", "lark_md", "markdown", "options", "number", "persons", "date"),
        "vertical_align": valign,
        "horizontal_align": align,
        "format": mapping,
        "date_format": string,
    },
    "name",
    "data_type",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    fields: dict[str, ValueCheck]
    required: tuple[str, ...] = ()
    container: bool = False
    input: bool = False
    """Where in a card it may stand is in `check`."""


COMPONENTS: dict[str, ComponentSpec] = {
    "markdown": ComponentSpec(fields={**_FONT, "icon": icon}, required=("content",)),
    "div": ComponentSpec(fields={"text": words, "icon": icon, "width": width}, required=("text",)),
    "hr": ComponentSpec(fields={}),
    "img": ComponentSpec(
        fields={
            "img_key": image_key,
            "alt": plain,
            "title": words,
            "corner_radius": string,
            "scale_type": one_of("crop_center", "crop_top", "fit_horizontal"),
            "size": string,
            "transparent": boolean,
            "preview": boolean,
        },
        required=("img_key", "alt"),
    ),
    "person": ComponentSpec(fields={"user_id": string, "size": string, "show_name": boolean}),
    "chart": ComponentSpec(
        fields={"chart_spec": mapping, "aspect_ratio": string, "height": string},
        required=("chart_spec",),
    ),
    "table": ComponentSpec(
        fields={
            "page_size": integer(1, 10),
            "row_height": string,
            "row_max_height": string,
            "freeze_first_column": boolean,
            "header_style": mapping,
            "columns": listing(_TABLE_COLUMN, low=1, high=50),
            "rows": listing(mapping),
        },
        required=("columns", "rows"),
    ),
    "column_set": ComponentSpec(
        fields={
            "flex_mode": one_of("none", "stretch", "flow", "bisect", "trisect"),
            "background_style": string,
            "horizontal_spacing": spacing,
            "horizontal_align": align,
            "columns": listing(nested("column")),
        },
        required=("columns",),
        container=True,
    ),
    "column": ComponentSpec(
        fields={
            **_LAYOUT,
            "background_style": string,
            "width": width,
            "weight": integer(1, 5),
            "elements": elements,
        },
    ),
    "collapsible_panel": ComponentSpec(
        fields={
            **_LAYOUT,
            "padding": strict_padding,
            "expanded": boolean,
            "background_color": colour,
            "header": shape(
                {
                    "title": rich,
                    "background_color": colour,
                    "vertical_align": valign,
                    "padding": strict_padding,
                    "position": valign,
                    "width": width,
                    "icon": icon,
                    "icon_position": one_of("left", "right", "follow_text"),
                    "icon_expanded_angle": integer(-180, 180),
                },
                "title",
            ),
            "border": shape({"color": colour, "corner_radius": string}),
            "elements": elements,
        },
        required=("header", "elements"),
        container=True,
    ),
    "interactive_container": ComponentSpec(
        fields={
            **_LAYOUT,
            "width": width,
            "height": string,
            "background_style": string,
            "has_border": boolean,
            "border_color": colour,
            "corner_radius": string,
            "behaviors": behaviors,
            "confirm": confirm,
            "disabled": boolean,
            "disabled_tips": plain,
            "hover_tips": plain,
            "elements": elements,
        },
        required=("elements",),
        container=True,
    ),
    "form": ComponentSpec(
        fields={**_LAYOUT, "name": string, "elements": elements, "confirm": confirm},
        required=("name", "elements"),
        container=True,
    ),
    "button": ComponentSpec(
        fields={
            "type": one_of(
                *["default", "primary", "danger", "text", "primary_text", "danger_text"],
                *["primary_filled", "danger_filled", "laser"],
            ),
            "size": one_of("tiny", "small", "medium", "large"),
            "width": width,
            "text": words,
            "icon": icon,
            "hover_tips": plain,
            "disabled": boolean,
            "disabled_tips": plain,
            "confirm": confirm,
            "behaviors": behaviors,
            "form_action_type": one_of("submit", "reset"),
            "name": text_up_to(100),
            "required": boolean,
        },
        input=True,
    ),
    "overflow": ComponentSpec(
        fields={**_SELECT, "options": listing(mapping, low=1)}, required=("options",)
    ),
    "select_static": ComponentSpec(
        fields={
            **_SELECT,
            "options": listing(option, low=1),
            "initial_index": integer(1, 1000),
            "initial_option": string,
        },
        required=("options",),
        input=True,
    ),
    "multi_select_static": ComponentSpec(
        fields={**_SELECT, "options": listing(option, low=1), "selected_values": listing(string)},
        required=("options",),
        input=True,
    ),
    "select_person": ComponentSpec(fields={**_SELECT, "options": listing(mapping)}, input=True),
    "date_picker": ComponentSpec(fields={**_SELECT, "initial_date": string}, input=True),
    "picker_time": ComponentSpec(fields={**_SELECT, "initial_time": string}, input=True),
    "picker_datetime": ComponentSpec(fields={**_SELECT, "initial_datetime": string}, input=True),
    "checker": ComponentSpec(
        fields={
            "name": string,
            "checked": boolean,
            "disabled": boolean,
            "text": words,
            "overall_checkable": boolean,
            "checked_style": mapping,
            "behaviors": behaviors,
            "confirm": confirm,
            "padding": padding,
        },
        input=True,
    ),
    "input": ComponentSpec(
        fields={
            "name": string,
            "required": boolean,
            "disabled": boolean,
            "placeholder": plain,
            "default_value": text_up_to(1000),
            "width": width,
            "max_length": integer(1, 1000),
            "input_type": one_of("text", "multiline_text", "password"),
            "show_icon": boolean,
            "rows": integer(1, 100),
            "auto_resize": boolean,
            "max_rows": integer(1, 100),
            "label": plain,
            "label_position": one_of("top", "left"),
            "behaviors": behaviors,
            "confirm": confirm,
        },
        input=True,
    ),
    "plain_text": ComponentSpec(
        fields={**_FONT, "text_color": colour, "lines": integer(1, 100), "i18n_content": mapping},
        required=("content",),
    ),
    "lark_md": ComponentSpec(
        fields={**_FONT, "text_color": colour, "lines": integer(1, 100), "i18n_content": mapping},
        required=("content",),
    ),
    "standard_icon": ComponentSpec(
        fields={"token": string, "color": colour, "size": string}, required=("token",)
    ),
    "custom_icon": ComponentSpec(
        fields={"img_key": image_key, "size": string}, required=("img_key",)
    ),
    "text_tag": ComponentSpec(
        fields={"text": plain, "color": one_of(*TAG_COLOURS)}, required=("text",)
    ),
}

_SUMMARY = shape({"content": string, "i18n_content": mapping})
_PER_CLIENT = shape(
    {key: integer(1, 10_000) for key in ("default", "android", "ios", "pc")}, "default"
)
ROOT = shape(
    {
        "schema": one_of("2.0"),
        "config": shape(
            {
                "streaming_mode": boolean,
                "streaming_config": shape(
                    {
                        "print_frequency_ms": _PER_CLIENT,
                        "print_step": _PER_CLIENT,
                        "print_strategy": one_of("fast", "delay"),
                    }
                ),
                "summary": _SUMMARY,
                "locales": listing(string),
                "enable_forward": boolean,
                "update_multi": only_true,
                "width_mode": one_of("compact", "fill", "default"),
                "use_custom_translation": boolean,
                "enable_forward_interaction": boolean,
                "style": shape({"text_size": mapping, "color": mapping}),
            }
        ),
        "card_link": shape(_ANY_URL),
        "header": shape(
            {
                "title": words,
                "subtitle": words,
                "template": one_of(*TEMPLATES),
                "text_tag_list": listing(nested("text_tag"), high=3),
                "i18n_text_tag_list": mapping,
                "icon": icon,
                "padding": padding,
            },
            "title",
        ),
        "body": shape({**_LAYOUT, "elements": elements}, "elements"),
    },
    "schema",
    "body",
)
