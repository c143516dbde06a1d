from __future__ import annotations

from bot.app.backup_source import settings_masker
from bot.engine.redaction import SecretMasker


def masked(name: str, text: str) -> str:
    masker = SecretMasker(("s3cr3t-of-the-boss",))
    return settings_masker({"ODD_NAME"}, masker.mask)(name, text)


def test_lines_with_secrets_are_left_out_of_env_files_and_the_rest_stays() -> None:
    text = (
        "# our settings\nSHIFTBOSS_SLOTS=5\nexport TELEGRAM_BOT_TOKEN=123:abc\nODD_NAME=x\n"
        'PRIVATE_KEY="-----BEGIN\nline two\n-----END"\nEMPTY_KEY=\nNOTE=s3cr3t-of-the-boss\n'
    )

    found = masked(".env", text)

    assert "# our settings\nSHIFTBOSS_SLOTS=5\n" in found
    assert "EMPTY_KEY=\n" in found
    for secret in ("123:abc", "ODD_NAME=x", "line two", "s3cr3t-of-the-boss"):
        assert secret not in found
    assert "# TELEGRAM_BOT_TOKEN= was left out of the backup" in found


def test_configured_secrets_are_masked_in_other_settings_files() -> None:
    found = masked("mcp.json", '{"args": ["--key", "s3cr3t-of-the-boss"]}')

    assert "s3cr3t" not in found
    assert "--key" in found
