"""Settings as an editor sends them, at the start and while the server runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from conftest import Workplace
from lsp_client import CAPABILITIES, Client
from test_lsp import SAXPY

pytestmark = pytest.mark.asyncio


def configuration(client: Client, **settings: Any) -> None:
    client.notify("workspace/didChangeConfiguration", {"settings": {"dice": settings}})


async def test_settings_are_reloaded_while_the_server_runs(workplace: Workplace) -> None:
    client = await workplace.client(options={"trusted": True, "candidates": 3})
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    assert await client.lenses(uri)
    configuration(client, codeLens=False)
    assert await client.lenses(uri) == []
    await client.wait(lambda: any(method == "workspace/codeLens/refresh" for method, _ in client.requests))
    configuration(client)
    assert await client.lenses(uri)
    assert not client.messages()


async def test_what_is_wrong_is_said_once_and_the_rest_is_taken(workplace: Workplace) -> None:
    client = await workplace.client(options={"codeLens": False, "candidates": "many", "colour": 1})
    await client.wait(lambda: len(client.messages()) == 2)
    kinds = {
        params["message"]: params["type"]
        for name, params in client.notifications
        if name == "window/showMessage"
    }
    assert {kind for text, kind in kinds.items() if "'candidates' must be a number" in text} == {1}
    assert {kind for text, kind in kinds.items() if "unknown setting 'colour'" in text} == {2}
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    assert await client.lenses(uri) == []
    for _ in range(3):
        configuration(client, colour=1, codeLens=True)
    assert await client.lenses(uri)
    assert len(client.messages()) == 2


async def test_a_workspace_cannot_choose_what_runs(workplace: Workplace) -> None:
    client = await workplace.client(options={})
    configuration(client, trusted=True, checkpoint="/somewhere/else")
    await client.wait(lambda: len(client.messages()) == 2)
    assert all("user scope" in message for message in client.messages())
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await client.command((await client.actions(uri, SAXPY.index("dst[k] =")))[0]["command"])
    await client.wait(lambda: any(method == "window/showMessageRequest" for method, _ in client.requests))


async def test_a_client_that_is_asked_for_its_configuration(workplace: Workplace) -> None:
    workspace = {
        **CAPABILITIES["workspace"],
        "configuration": True,
        "didChangeConfiguration": {"dynamicRegistration": True},
    }
    answers: list[Any] = [{"codeLens": False}, None, {"codeLens": True}]
    client = await workplace.client(
        capabilities={**CAPABILITIES, "workspace": workspace},
        answers={"workspace/configuration": lambda _: [answers.pop(0)]},
    )
    uri = client.open(workplace.workspace / "a.cu", SAXPY, "cuda")
    await client.wait(lambda: len(answers) == 2)
    registered = next(params for name, params in client.requests if name == "client/registerCapability")
    assert registered["registrations"][0]["registerOptions"] == {"section": "dice"}
    await client.wait(lambda: any(method == "workspace/codeLens/refresh" for method, _ in client.requests))
    assert await client.lenses(uri) == []
    client.notify("workspace/didChangeConfiguration", {"settings": None})
    await client.wait(lambda: len(answers) == 1)
    assert await client.lenses(uri) == [], "a client with nothing to say changes nothing"
    client.notify("workspace/didChangeConfiguration", {"settings": None})
    await client.wait(lambda: not answers)
    await asyncio.sleep(0.05)
    assert await client.lenses(uri)


async def test_a_section_that_is_no_object_is_said_to_be_none(workplace: Workplace) -> None:
    client = await workplace.client()
    client.notify("workspace/didChangeConfiguration", {"settings": {"dice": 5}})
    await client.wait(lambda: client.messages(), timeout=20)
    assert client.messages() == [
        "DICE settings: the configuration `dice` must be an object; nothing is changed"
    ]
