"""Which properties each card JSON 2.0 component knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.emulators.feishu.cards.rules import (
    Check,
    align,
    anything,
    boolean,
    colour,
    integer,
    listing,
    mapping,
    one_of,
    only_true,
    padding,
    shape,
    spacing,
    strict_padding,
    string,
    text_size,
    text_up_to,
    url,
    valign,
    width,
)

if TYPE_CHECKING:
    from tests.emulators.feishu.cards.check import Walk

TEMPLATES = (
    *("blue", "wathet", "turquoise", "green", "yellow", "orange", "red"),
    *("carmine", "violet", "purple", "indigo", "grey", "default"),
)
TAG_COLOURS = (
    *("neutral", "blue", "turquoise", "lime", "orange", "violet", "indigo"),
    *("wathet", "green", "yellow", "red", "purple", "carmine"),
)


def elements(walk: Walk, path: str, value: Any) -> None:
    walk.elements(path, value)


def nested(*tags: str) -> Check:
    """One component, of one of these kinds."""

    def check(walk: Walk, path: str, value: Any) -> None:
        walk.component(path, value, tags)

    return check


def image_key(walk: Walk, path: str, value: Any) -> None:
    walk.image_key(path, value)


plain = nested("plain_text")
words = nested("plain_text", "lark_md")
rich = nested("plain_text", "lark_md", "markdown")
icon = nested("standard_icon", "custom_icon")
confirm = shape({"title": plain, "text": plain}, "title", "text")
_ANY_URL = dict.fromkeys(("default_url", "url", "pc_url", "ios_url", "android_url"), url)


def behavior(walk: Walk, path: str, value: Any) -> None:
    kinds = {
        "callback": shape({"type": string, "value": mapping}, "type", "value"),
        "open_url": shape({"type": string, **_ANY_URL}, "type", "default_url"),
    }
    mapping(walk, path, value)
    one_of(*kinds)(walk, path, value.get("type"))
    kinds[value["type"]](walk, path, value)


behaviors = listing(behavior, low=1, high=2)
option = shape({"text": plain, "icon": icon, "value": string}, "text", "value")
_LAYOUT: dict[str, Check] = {
    "direction": one_of("vertical", "horizontal"),
    "padding": padding,
    "vertical_spacing": spacing,
    "vertical_align": valign,
    "horizontal_spacing": spacing,
    "horizontal_align": align,
}
_PICK: dict[str, Check] = {
    "type": one_of("default", "text"),
    "name": string,
    "placeholder": plain,
    "width": width,
    "disabled": boolean,
    "required": boolean,
    "behaviors": behaviors,
    "confirm": confirm,
}
_FONT: dict[str, Check] = {"content": string, "text_size": text_size, "text_align": align}
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
class Spec:
    fields: dict[str, Check]
    required: tuple[str, ...] = ()
    container: bool = False
    input: bool = False
    """Where in a card it may stand is in `check`."""


COMPONENTS: dict[str, Spec] = {
    "markdown": Spec(fields={**_FONT, "icon": icon}, required=("content",)),
    "div": Spec(fields={"text": words, "icon": icon, "width": width}, required=("text",)),
    "hr": Spec(fields={}),
    "img": Spec(
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
    "person": Spec(fields={"user_id": string, "size": string, "show_name": boolean}),
    "chart": Spec(
        fields={"chart_spec": mapping, "aspect_ratio": string, "height": string},
        required=("chart_spec",),
    ),
    "table": Spec(
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
    "column_set": Spec(
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
    "column": Spec(
        fields={
            **_LAYOUT,
            "background_style": string,
            "width": width,
            "weight": integer(1, 5),
            "elements": elements,
        },
    ),
    "collapsible_panel": Spec(
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
    "interactive_container": Spec(
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
    "form": Spec(
        fields={**_LAYOUT, "name": string, "elements": elements, "confirm": confirm},
        required=("name", "elements"),
        container=True,
    ),
    "button": Spec(
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
    "overflow": Spec(fields={**_PICK, "options": listing(mapping, low=1)}, required=("options",)),
    "select_static": Spec(
        fields={
            **_PICK,
            "options": listing(option, low=1),
            "initial_index": integer(1, 1000),
            "initial_option": string,
        },
        required=("options",),
        input=True,
    ),
    "multi_select_static": Spec(
        fields={**_PICK, "options": listing(option, low=1), "selected_values": listing(string)},
        required=("options",),
        input=True,
    ),
    "select_person": Spec(fields={**_PICK, "options": listing(mapping)}, input=True),
    "date_picker": Spec(fields={**_PICK, "initial_date": string}, input=True),
    "picker_time": Spec(fields={**_PICK, "initial_time": string}, input=True),
    "picker_datetime": Spec(fields={**_PICK, "initial_datetime": string}, input=True),
    "checker": Spec(
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
    "input": Spec(
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
    "plain_text": Spec(
        fields={**_FONT, "text_color": colour, "lines": integer(1, 100), "i18n_content": mapping},
        required=("content",),
    ),
    "lark_md": Spec(
        fields={**_FONT, "text_color": colour, "lines": integer(1, 100), "i18n_content": mapping},
        required=("content",),
    ),
    "standard_icon": Spec(
        fields={"token": string, "color": colour, "size": string}, required=("token",)
    ),
    "custom_icon": Spec(fields={"img_key": image_key, "size": string}, required=("img_key",)),
    "text_tag": Spec(fields={"text": plain, "color": one_of(*TAG_COLOURS)}, required=("text",)),
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
