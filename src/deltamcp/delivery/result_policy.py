"""The result policy of one call: what its server, its tool, its request and its meta-tool say, the nearest first."""

from typing import NamedTuple

from msgspec.structs import replace

from deltamcp import tokens
from deltamcp.catalog.meta_tools import MetaTool
from deltamcp.catalog.operation import Operation
from deltamcp.catalog.view import View
from deltamcp.errors import UsageError
from deltamcp.results.policy import (
    META_KEY,
    ROOT_KEY,
    ResolvedPolicy,
    ResultPolicy,
    override_policy,
    parse_root,
    requested_policy,
)
from deltamcp.values import JSON, Terms


class ResultOverride(NamedTuple):
    """What a meta-tool says of the result of the operation it runs."""

    policy: ResultPolicy
    note: str = ""
    """A text that goes out with the reply, and counts."""


def policy_for_call(
    operation: Operation, view: View, terms: Terms, override: ResultOverride | None
) -> ResolvedPolicy | None:
    """The policy of a call; None where nobody sets one, and the result is sent as it is.

    Raises:
        UsageError: the request asks for something that cannot be read, or kept to.
    """
    policy = operation.resolved_policy
    if override is None and META_KEY not in terms.meta:
        return policy
    requested = requested_policy(terms.meta)
    if requested is not None:
        if view.meta_tool_name(MetaTool.CONTINUE) in view.operations:
            raise UsageError(
                f"{view.meta_tool_name(MetaTool.CONTINUE)} is another tool here, so what is cut could not be read."
            )
        policy = override_policy(requested, policy or view.resolved_policy)
        own = operation.resolved_policy
        if own is not None and (own.deltas is False or own.dedup is False):  # an author's no overrules a request's yes
            deltas = own.deltas if own.deltas is False else policy.deltas
            policy = replace(policy, deltas=deltas, dedup=own.dedup or False)
    if override is None:
        return policy
    policy = override_policy(override.policy, policy or view.resolved_policy)
    if not override.note:
        return policy
    return replace(policy, max_tokens=policy.max_tokens - tokens.count(override.note, policy.model) - 1)


def take_root(
    operation: Operation, policy: ResolvedPolicy, arguments: dict[str, JSON]
) -> tuple[dict[str, JSON], ResolvedPolicy]:
    """Moves the root that the caller says it holds from the arguments to the policy: the function does not take it.

    Raises:
        UsageError: it is no root.
    """
    if not operation.takes_root or ROOT_KEY not in arguments:
        return arguments, policy
    arguments = dict(arguments)
    return arguments, replace(policy, pack_root=parse_root(arguments.pop(ROOT_KEY)))
