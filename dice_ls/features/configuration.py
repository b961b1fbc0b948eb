"""Settings: taken from the client at the start, and again whenever it says that they changed."""

from __future__ import annotations

from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from dice_ls.language_server import DiceServer
from dice_ls.settings import Settings

_SECTION = "dice"


def register(server: DiceServer) -> None:
    @server.feature(types.WORKSPACE_DID_CHANGE_CONFIGURATION)
    async def did_change_configuration(ls: DiceServer, params: types.DidChangeConfigurationParams) -> None:
        """The new values are in the message, or the message only says that there are some."""
        pushed = params.settings
        if isinstance(pushed, dict) and pushed.get(_SECTION) is not None:
            _take(ls, pushed[_SECTION])
        elif ls.supports("workspace.configuration"):
            await _pull(ls)
        elif pushed is not None:
            _take(ls, pushed)


def at_start(ls: DiceServer, options: Any) -> None:
    ls.settings, ls.setting_problems = Settings.from_client(options)
    ls.first_settings = ls.settings


async def when_ready(ls: DiceServer) -> None:
    """Say what was wrong with the first settings, and ask to be told of changes."""
    _warn(ls, ls.setting_problems)
    if ls.supports("workspace.did_change_configuration.dynamic_registration"):
        options = types.DidChangeConfigurationRegistrationOptions(section=_SECTION)
        registration = types.Registration("dice-settings", types.WORKSPACE_DID_CHANGE_CONFIGURATION, options)
        ls.client_register_capability(types.RegistrationParams([registration]))
    if ls.supports("workspace.configuration"):
        await _pull(ls)


async def _pull(ls: DiceServer) -> None:
    """Ask the client for the section ``dice``; one that has nothing to say changes nothing."""
    items = [types.ConfigurationItem(section=_SECTION)]
    try:
        answer = await ls.workspace_configuration_async(types.ConfigurationParams(items))
    except JsonRpcException as error:
        ls.note(f"the client did not say its configuration: {error}")
        return
    if answer and answer[0] is not None:
        _take(ls, answer[0])


def _take(ls: DiceServer, section: Any) -> None:
    before = ls.settings
    ls.settings, problems = before.reloaded(section, ls.first_settings)
    _warn(ls, [problem for problem in problems if problem not in ls.setting_problems])
    ls.setting_problems = problems
    if ls.settings.codeLens != before.codeLens:
        ls.refresh_lenses()


def _warn(ls: DiceServer, problems: list[str]) -> None:
    for problem in problems:
        kind = types.MessageType.Error if " must be " in problem else types.MessageType.Warning
        ls.show(f"DICE settings: {problem}", kind)
