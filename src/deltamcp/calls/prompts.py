"""Answers to prompt requests, and completions of the arguments of prompts and resource templates."""

from collections.abc import Mapping

from deltamcp.calls.capabilities import Capabilities
from deltamcp.calls.function_runner import FunctionRunner
from deltamcp.calls.lists import Lists
from deltamcp.calls.request_context import RequestContext
from deltamcp.catalog.argument_problem import InvalidArgumentsError
from deltamcp.catalog.prompt import Prompt
from deltamcp.catalog.resource import Resource
from deltamcp.errors import Fault
from deltamcp.results import content
from deltamcp.runtime.deadline import Deadline
from deltamcp.values import JSON, NO_INPUTS, Answer, Complete, Completion, Failure, GetPrompt, Kind, Outcome, RawResult


class Prompts:
    """Answers `prompts/get` and `completion/complete`."""

    def __init__(self, capabilities: Capabilities, lists: Lists, runner: FunctionRunner) -> None:
        self._capabilities = capabilities
        self._lists = lists
        self._runner = runner

    async def get(self, ask: GetPrompt, request: RequestContext) -> Outcome:
        if not self._capabilities.offers(Kind.PROMPTS, request.terms.caller.principal):
            return Failure(Fault.UNKNOWN_METHOD, "This server offers no prompts.")
        prompt = request.view.prompts.get(ask.name)
        if prompt is None:
            return await self._lists.unknown("prompt", ask.name, request)
        try:
            arguments = prompt.bind(ask.arguments)
        except InvalidArgumentsError as error:
            return Failure(Fault.INVALID_PARAMS, f"Invalid arguments for {ask.name}. {error}")

        async def fill(answers: Mapping[str, JSON], deadline: Deadline) -> Outcome:
            value = await self._runner.run_call(prompt, ask.arguments, arguments, request, answers, deadline)
            if isinstance(value, RawResult):
                return Answer(value)
            return Answer(content.prompt_result(value, prompt.list_item.get("description")))

        key = ["prompts/get", ask.name, ask.arguments]
        return await self._runner.perform(f"The prompt {ask.name}", key, ask.inputs, request, fill)

    async def complete(self, ask: Complete, request: RequestContext) -> Outcome:
        if not self._capabilities.completes(request.terms.caller.principal):
            return Failure(Fault.UNKNOWN_METHOD, "This server offers no completions.")
        items: Mapping[str, Prompt | Resource]
        items = request.view.prompts if ask.kind == "prompt" else request.view.templates
        if ask.target not in items:
            return await self._lists.unknown(ask.kind, ask.target, request)
        registered = request.view.completions.get((ask.kind, ask.target, ask.argument))
        completer = registered or items[ask.target].completer(ask.argument)
        if completer is None:
            return Answer(Completion([], total=0, has_more=False))

        async def suggest(answers: Mapping[str, JSON], deadline: Deadline) -> Outcome:
            arguments = completer.bind(ask.value, ask.context)
            value = await self._runner.run_function(completer, arguments, request, answers, deadline)
            return Answer(value if isinstance(value, RawResult) else content.completion(value))

        return await self._runner.perform(f"The completion of {ask.argument}", [], NO_INPUTS, request, suggest)
