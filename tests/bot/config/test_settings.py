"""Settings: who wins, what is refused, and that the example is complete."""

from __future__ import annotations

import json
import logging
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.cli.command_line import create_cli
from bot.config.logs import LOG_FILE, RedactingFormatter, configure_logging
from bot.config.settings import BadSettings, Settings, load_settings, setting_names
from bot.config.sources import list_unknown_variables, read_example
from bot.engine.redaction import MASK, SecretMasker
from storage.records.people import Channel

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for field in Settings.model_fields.values():
        monkeypatch.delenv(str(field.alias), raising=False)
    monkeypatch.setenv("SHIFTBOSS_HOME", str(tmp_path))
    return tmp_path


def test_the_environment_wins_over_env_files_and_those_over_yaml(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "shiftboss.yaml").write_text("slots: 5\ntimezone: Asia/Shanghai\nweb_port: 9000\n")
    (home / ".env").write_text("SHIFTBOSS_SLOTS=6\nSHIFTBOSS_WEB_PORT=9001\n")
    monkeypatch.setenv("SHIFTBOSS_WEB_PORT", "9002")

    settings = load_settings(())

    assert (settings.timezone, settings.slots, settings.web_port) == ("Asia/Shanghai", 6, 9002)


def test_reading_a_file_leaves_no_class_and_no_value_behind(home: Path) -> None:
    """A class for each reading took two thirds of its time."""
    (home / "shiftboss.yaml").write_text("slots: 5\n")
    classes = len(Settings.__subclasses__())

    assert load_settings(()).slots == 5
    assert len(Settings.__subclasses__()) == classes
    assert Settings.model_validate({}).slots == 3


def test_a_home_without_files_gives_the_defaults(home: Path) -> None:
    settings = load_settings(())

    assert settings.home == home
    assert settings.database == f"sqlite:///{home}/shiftboss.db"
    assert settings.slots == 3


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:/u",
        "postgresql://u:hidden@h:port/x",
        "mysql://u:hidden@h/x",
        "postgresql+asyncpg://u:hidden@h/x",
        "localhost/x",
    ],
)
def test_a_database_of_another_form_is_refused_without_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)

    with pytest.raises(BadSettings, match=r"^DATABASE_URL: leave it empty, or give") as refusal:
        load_settings(())

    assert "hidden" not in str(refusal.value)


def test_holidays_without_their_package_are_refused_with_the_command_that_brings_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)
    (home / "shiftboss.yaml").write_text("holidays: CN")

    with pytest.raises(BadSettings, match=r"shiftboss\[holidays\]"):
        load_settings(())


@pytest.mark.parametrize(
    ("yaml", "told"),
    [
        ("slot: 5\ncolour: red", ["'slot'", "'colour'"]),
        ("slots: many", ["SHIFTBOSS_SLOTS"]),
        ("slots: 0", ["SHIFTBOSS_SLOTS"]),
        ("step_turns: 501", ["SHIFTBOSS_STEP_TURNS", "500"]),
        ("step_tokens: 1", ["SHIFTBOSS_STEP_TOKENS", "1000"]),
        ("step_seconds: .nan", ["SHIFTBOSS_STEP_SECONDS"]),
        ("timezone: Mars/Olympus", ["Mars/Olympus"]),
        ("holidays: Atlantis", ["SHIFTBOSS_HOLIDAYS", "'Atlantis'", "CN"]),
        ("holidays: DE-XX", ["'DE-XX'"]),
        ("model: gpt", ["'gpt'"]),
        ("owners: bob", ["'bob'"]),
        ('owners: "telegram:@bob"', ["'telegram:@bob'"]),
        ('owners: "telegram:-100123"', ["'telegram:-100123'"]),
        ('owners: "telegram:１２"', ["telegram:123"]),
        ('owners: "feishu:oc_group"', ["'feishu:oc_group'"]),
        ("telegram_bot_token: x", ["'telegram_bot_token'", "secret"]),
        ("feishu_app_id: cli_x", ["FEISHU_APP_SECRET"]),
        ("web_host: 0.0.0.0", ["SHIFTBOSS_WEB_TOKEN"]),
        ("tools_env: A B", ["'A B'"]),
        ("tools_env: HTTPS_PROXY, OPENAI_API_KEY", ["OPENAI_API_KEY", "secret"]),
        ("tools_folders: .nvm", ["'.nvm'", "absolute"]),
        ("- a list", ["slots: 3"]),
        ("a: [", ["line"]),
    ],
)
def test_a_fault_in_yaml_is_told_by_name(home: Path, yaml: str, told: list[str]) -> None:
    (home / "shiftboss.yaml").write_text(yaml)

    with pytest.raises(BadSettings) as refusal:
        load_settings(())

    assert all(each in str(refusal.value) for each in told)


def test_a_typo_in_an_env_file_is_told_by_name(home: Path) -> None:
    (home / ".env").write_text("SHIFTBOSS_SLOT=3\n")

    with pytest.raises(BadSettings) as refusal:
        load_settings(())

    assert str(refusal.value) == (
        f"SHIFTBOSS_SLOT in {home / '.env'}: there is no such setting;"
        " did you mean SHIFTBOSS_SLOTS?"
    )


@pytest.mark.parametrize("line", ["this is bad", "OPENAI_API_KEY='sk-unclosed", "=x"])
def test_a_line_that_is_no_setting_is_told_with_its_file_and_without_its_content(
    home: Path, line: str
) -> None:
    (home / ".env").write_text(f"# mine\nSHIFTBOSS_SLOTS=2\n{line}\n")

    with pytest.raises(BadSettings) as refusal:
        load_settings(())

    assert str(refusal.value) == f"line 3 of {home / '.env'} is not NAME=value"


def test_a_bad_value_is_told_with_the_file_that_wins(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".env").write_text("SHIFTBOSS_SLOTS=many\n")
    with pytest.raises(BadSettings, match=f"SHIFTBOSS_SLOTS in {home}/.env: "):
        load_settings(())

    monkeypatch.setenv("SHIFTBOSS_SLOTS", "few")
    with pytest.raises(BadSettings, match=r"^SHIFTBOSS_SLOTS: "):
        load_settings(())


def test_variables_that_no_setting_has_are_told_with_what_was_meant() -> None:
    environ = {"SHIFTBOSS_SLOT": "2", "SHIFTBOSS_SLOTS": "2", "SHIFTBOSS_RUN": "x", "PATH": "y"}

    assert list_unknown_variables(environ, setting_names()) == [
        "SHIFTBOSS_SLOT in the environment: there is no such setting; did you mean SHIFTBOSS_SLOTS?"
    ]


def test_owners_are_read_as_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBOSS_OWNERS", "telegram:123, feishu:ou_x")

    assert load_settings(()).owner_ids == ((Channel.TELEGRAM, "123"), (Channel.FEISHU, "ou_x"))


def test_the_example_is_printed_and_packed() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
    packed = build["build"]["targets"]["wheel"]["force-include"]

    printed = CliRunner().invoke(
        create_cli(), ["init", "--example"], env={"SHIFTBOSS_SLOTS": "many"}
    )

    assert printed.exit_code == 0
    assert printed.output == (ROOT / ".env.example").read_text(encoding="utf-8") == read_example()
    assert packed == {".env.example": "bot/config/env.example"}


def test_every_setting_is_in_the_example_and_nothing_else_is() -> None:
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    named = [line.partition("=")[0] for line in lines if line and not line.startswith("#")]

    assert sorted(named) == sorted(str(f.alias) for f in Settings.model_fields.values())


def test_the_example_itself_is_a_valid_env_file(home: Path) -> None:
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    (home / ".env").write_text(example.replace("SHIFTBOSS_HOME=~/.shiftboss\n", ""))

    assert load_settings(()) == Settings.model_validate({"SHIFTBOSS_HOME": home})


def test_no_secret_is_shown_by_settings_or_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "12345:hidden-one")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hidden-two@h/db")
    settings = load_settings(())
    record = logging.LogRecord(
        "x", logging.INFO, "", 0, "12345:hidden-one %s", ("hidden-two",), None
    )

    assert "hidden-one" not in repr(settings)
    shown = RedactingFormatter(SecretMasker(settings.secret_values).mask).format(record)
    assert shown.count(MASK) == 2
    assert "hidden" not in shown


def test_json_logs_mask_secrets_and_files_begin_anew_at_their_size(tmp_path: Path) -> None:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        configure_logging(
            "INFO",
            SecretMasker(("sk-a-secret-value",)).mask,
            tmp_path,
            as_json=True,
            megabytes=0.002,
            files=1,
        )
        try:
            int("sk-a-secret-value")
        except ValueError:
            logging.getLogger("some.part").exception("refused: %s", "sk-a-secret-value 值")
        file = tmp_path / LOG_FILE
        line = json.loads(file.read_text(encoding="utf-8"))
        assert (line["level"], line["logger"], line["text"]) == (
            "ERROR",
            "some.part",
            f"refused: {MASK} 值",
        )
        assert "ValueError" in line["error"]
        assert "a-secret" not in file.read_text(encoding="utf-8")
        for _ in range(40):
            logging.getLogger("some.part").info("one more line of a hundred bytes or so")
        assert sorted(each.name for each in file.parent.iterdir()) == [
            "shiftboss.log",
            "shiftboss.log.1",
        ]
        assert file.stat().st_size <= 2_100
    finally:
        for each in root.handlers:
            each.close()
        root.handlers[:] = handlers
        root.setLevel(level)
