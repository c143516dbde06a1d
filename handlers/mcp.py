"""Handles /mcp: lists the MCP servers with their states, restarts them, and signs in to them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import PurePath
from urllib.parse import urlsplit

from cards import formats
from cards.model import notice_card
from cards.views.tools import mcp_servers_card
from handlers.errors import UsageError, UserError
from handlers.request import CommandRegistry, Reply, Request
from storage.records.workers import McpServerState, McpServerStatus, SignInFailed

_RESTART_WORDS = {"restart", "重启"}
_REVOKE_WORDS = {"revoke", "撤销", "收回"}
_LOGIN_WORDS, _LOGOUT_WORDS = {"login", "登录"}, {"logout", "退出"}
_CODE_WORDS = {"code", "授权码"}
_MAX_NAME = 40
_MAX_FAILURE = 200

commands = CommandRegistry("system")


@commands("mcp", aliases=("工具服务",), immediate=True, verbatim=True)
async def manage_mcp_servers(request: Request) -> Reply:
    word, _, name = request.args.strip().partition(" ")
    if word.casefold() in _RESTART_WORDS:
        return await _restart(request, name.strip())
    if word.casefold() in _REVOKE_WORDS:
        return await _revoke(request, name.strip())
    if word.casefold() in _LOGIN_WORDS | _LOGOUT_WORDS | _CODE_WORDS:
        return await _sign_in(request, word.casefold(), name.strip())
    if word:
        raise UsageError("mcp")
    servers = await _list_servers(request)
    faults = await request.services.mcp.list_faults()
    consents = await request.services.mcp.list_consents() if _sees_all(request) else ()
    return Reply(
        card=mcp_servers_card(
            servers, faults, request.words, with_places=_sees_all(request), consents=consents
        ),
        data={
            "servers": [asdict(each) for each in servers],
            "faults": list(faults),
            "consents": [asdict(each) for each in consents],
        },
    )


async def start_sign_in(request: Request, server: str) -> Reply:
    return await _sign_in(request, next(iter(_LOGIN_WORDS)), server)


async def _sign_in(request: Request, word: str, given: str) -> Reply:
    """Start a sign-in, in private chats only: the page and the code are for the owner alone."""
    request.require_owner()
    if not request.in_private:
        raise UserError("mcp_sign_in_private")
    if not given:
        raise UsageError("mcp")
    mcp, name = request.services.mcp, formats.escape_markdown(given, _MAX_NAME)
    try:
        if word in _CODE_WORDS:
            name = formats.escape_markdown(await mcp.finish_sign_in(given), _MAX_NAME)
            return _sign_in_reply(request, "done", server=name)
        if word in _LOGOUT_WORDS:
            return _sign_in_reply(request, await mcp.sign_out(given), server=name)
        link = await mcp.start_sign_in(given)
    except SignInFailed as error:
        why = formats.escape_markdown(str(error), _MAX_FAILURE)
        raise UserError("mcp_sign_in_failed", why=why) from error
    if link is None:
        raise UserError("unknown_mcp_server", name=formats.single_line(given, _MAX_NAME))
    return _sign_in_reply(request, "open", server=name, host=urlsplit(link).netloc, link=link)


def _sign_in_reply(request: Request, state: str, **facts: str) -> Reply:
    text = request.words(f"mcp.sign_in.{state}", **facts)
    return Reply(
        card=notice_card(request.words("mcp.list.title"), text), data={"state": state, **facts}
    )


async def _revoke(request: Request, consent_id: str) -> Reply:
    request.require_owner()
    if not consent_id:
        raise UsageError("mcp")
    revoked = await request.services.mcp.revoke_consent(consent_id.casefold())
    if revoked is None:
        raise UserError("unknown_mcp_consent", name=formats.single_line(consent_id, _MAX_NAME))
    project = formats.escape_markdown(PurePath(revoked.project).name, _MAX_NAME)
    text = request.words("mcp.consent.revoked", project=project)
    return Reply(card=notice_card(request.words("mcp.list.title"), text), data=asdict(revoked))


async def _restart(request: Request, name: str) -> Reply:
    request.require_owner()
    if not name:
        raise UsageError("mcp")
    stopped = await request.services.mcp.restart(
        name, select=lambda server: _is_visible(server, request)
    )
    if not stopped:
        raise UserError("unknown_mcp_server", name=formats.single_line(name, _MAX_NAME))
    shown = formats.escape_markdown(name, _MAX_NAME)
    text = request.words("mcp.stopped", server=shown, n=stopped)
    return Reply(
        card=notice_card(request.words("mcp.list.title"), text),
        data={"server": name, "stopped": stopped},
    )


async def _list_servers(request: Request) -> list[McpServerStatus]:
    """List the servers in use, then configured ones that were not used here yet."""
    used = [each for each in request.services.mcp.list_servers() if _is_visible(each, request)]
    known = {(each.persona, each.server) for each in used}
    roster = await request.services.personas.roster()
    configured = [(each.name, server) for each in roster.personas for server in each.servers]
    names = {each.server for each in used}
    shared = await request.services.mcp.list_shared()
    configured += [("", server) for server in shared if server not in names]
    unused = [
        McpServerStatus(server=server, persona=persona, state=McpServerState.STOPPED)
        for persona, server in configured
        if (persona, server) not in known
    ]
    if not _sees_all(request):
        # An error may show paths and settings of the machine.
        used = [replace(each, error="") for each in used]
    return [*used, *unused]


def _sees_all(request: Request) -> bool:
    """Whether the person sees all servers with their addresses and errors: owners in private do,
    because in a group others read along."""
    return request.in_private and request.by_owner


def _is_visible(server: McpServerStatus, request: Request) -> bool:
    if _sees_all(request):
        return True
    return server.chat_id == request.chat.id and server.person_id == request.person.id
