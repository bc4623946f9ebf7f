"""The result policy of one call: a meta-tool's options override the request's, the tool's and the server's policy."""

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
    RequestPolicy,
    ResolvedPolicy,
    ResultPolicy,
    override_policy,
    parse_root,
    requested_policy,
)
from deltamcp.results.query import parse_query
from deltamcp.values import JSON, Terms

_NOTHING_ASKED = RequestPolicy()


class ResultOverride(NamedTuple):
    """The result options that a meta-tool sets for the operation it runs."""

    policy: ResultPolicy
    note: str = ""
    """A text that the server adds to the reply; its tokens count towards the budget."""


def policy_for_call(
    operation: Operation, view: View, terms: Terms, override: ResultOverride | None
) -> ResolvedPolicy | None:
    """Returns the policy of a call; None if the result is sent as it is.

    It is if the tool says so and the request asks for no part of it, if neither server, tool nor request sets a policy,
    or if the request says that its sender fits the result itself.

    Raises:
        UsageError: the policy in the request is invalid, or the server cannot follow it.
    """
    policy = operation.resolved_policy
    if override is None and META_KEY not in terms.meta:
        return policy
    requested = requested_policy(terms.meta)
    if requested is not None and requested.whole:
        policy = None
    elif requested is not None:
        if view.meta_tool_name(MetaTool.CONTINUE) in view.operations:
            raise UsageError(
                f"This server has its own tool {view.meta_tool_name(MetaTool.CONTINUE)}, so it cannot cut results."
            )
        policy = override_policy(requested, policy or view.resolved_policy)
        own = operation.resolved_policy
        # A request cannot turn on what the author turned off.
        if own is not None and (own.deltas is False or own.dedup is False):
            deltas = own.deltas if own.deltas is False else policy.deltas
            policy = replace(policy, deltas=deltas, dedup=own.dedup or False)
    passes = operation.results is False or (requested is not None and requested.whole)
    if override is None or (passes and override.policy == _NOTHING_ASKED and policy is None):
        return policy  # a result that passes as it is has no note either
    policy = override_policy(override.policy, policy or view.resolved_policy)
    return reserve_note(policy, override.note) if override.note else policy


def reserve_note(policy: ResolvedPolicy, note: str) -> ResolvedPolicy:
    """Returns the policy of a result that leaves room for a note below it."""
    return replace(policy, max_tokens=policy.max_tokens - tokens.count(note, policy.model) - 1)


def take_query(
    operation: Operation, policy: ResolvedPolicy, arguments: dict[str, JSON]
) -> tuple[dict[str, JSON], ResolvedPolicy]:
    """Moves `fields` and `grep` from the arguments of a plain tool to the policy, if its function does not take them.

    Raises:
        UsageError: they are no query.
    """
    if operation.query_arguments and not arguments.keys().isdisjoint(operation.query_arguments):
        arguments = dict(arguments)
        given = {name: arguments.pop(name, None) for name in operation.query_arguments}
        query = parse_query(given.get("fields"), given.get("grep"))
        policy = override_policy(RequestPolicy(fields=query.fields, grep=query.grep), policy)
    return arguments, policy


def take_root(
    operation: Operation, policy: ResolvedPolicy, arguments: dict[str, JSON]
) -> tuple[dict[str, JSON], ResolvedPolicy]:
    """Moves the root of the caller's last result from the arguments to the policy, as the function does not take it.

    Raises:
        UsageError: the argument is no root.
    """
    if not operation.takes_root or ROOT_KEY not in arguments:
        return arguments, policy
    arguments = dict(arguments)
    root = parse_root(arguments.pop(ROOT_KEY))
    return arguments, policy if root is None else replace(policy, pack_root=root)
