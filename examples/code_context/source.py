"""One Python file: what it defines, and what the code in it says before anyone knows what its names mean."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from examples.code_context.words import words

Chain: TypeAlias = tuple[str, ...]
"""An expression, step by step: `self.store.get(key).size` is ("self", "store", "get", CALL, "size")."""
CALL, ITEM = "()", "[]"
INSTANCE, CLASS = "<instance>", "<class>"
"""What a method's first parameter stands for."""

NAME, HOME, PROSE, PART, BODY = 1.0, 0.5, 0.3, 0.25, 0.15
"""What a word is worth: in a symbol's own name, in those of its class and module, in its docstring, in the names of
its parameters and members, in its code."""

_TRANSPARENT = {"Annotated", "AsyncIterator", "Awaitable", "ClassVar", "Final", "Generator", "Iterator", "Optional"}
"""Annotations that are about what they hold; of iterators that is right where they make context managers."""


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class, function or constant."""

    name: str
    kind: str
    path: str
    home: "Scope | None" = None
    """The class of a method, the module of anything else."""
    lines: tuple[int, int] = (1, 1)
    words: dict[str, float] = field(default_factory=dict)
    chains: dict[Chain, None] = field(default_factory=dict)
    members: dict[str, "Scope"] = field(default_factory=dict)
    bound: dict[str, Chain] = field(default_factory=dict)
    """Names and what they were given; () where nobody can say, which still hides the name outside."""
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Names, the modules they come from, and what they are called there; "" for the module itself."""
    imported: dict[tuple[str, str], None] = field(default_factory=dict)
    """Of a module: the same for every import anywhere in it."""
    stars: list[str] = field(default_factory=list)
    bases: list[Chain] = field(default_factory=list)
    attributes: dict[str, tuple["Scope", Chain]] = field(default_factory=dict)
    """Of a class: what they were given, and where."""
    returns: Chain = ()
    is_property: bool = False

    @property
    def module(self) -> "Scope":
        return self if self.home is None else self.home.module

    @property
    def is_class(self) -> bool:
        return self.kind in ("class", "interface")

    @property
    def is_function(self) -> bool:
        return self.kind in ("function", "method")

    def say(self, text: str, weight: float) -> None:
        for word in words(text):
            if weight > self.words.get(word, 0.0):
                self.words[word] = weight

    def everything(self) -> Iterator["Scope"]:
        yield self
        for member in self.members.values():
            yield from member.everything()


def read(source: bytes, path: str, name: str) -> Scope:
    """What a file says.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is not Python this interpreter can parse.
    """
    tree = ast.parse(source)
    module = Scope(name, "file", path, lines=(1, source.count(b"\n") + 1))
    package, _, last = name.rpartition(".")
    module.say(package, HOME)
    module.say(last, NAME)
    _Reader(module, name if path.endswith("__init__.py") else package).enter(module, tree.body)
    for scope in module.everything():
        for chain in scope.chains:
            scope.say(" ".join(chain), BODY)
    return module


class _Reader(ast.NodeVisitor):
    def __init__(self, module: Scope, package: str) -> None:
        self.scope = module
        self.package = package
        self.constant: Scope | None = None
        """The latest, for the text after it that describes it."""

    def enter(self, scope: Scope, nodes: Iterable[ast.AST | None]) -> None:
        outer, self.scope = self.scope, scope
        for node in nodes:
            if node is not None:
                self.visit(node)
        self.scope = outer

    def _member(self, name: str, kind: str, node: ast.stmt | ast.expr) -> Scope:
        """A new symbol of this scope, or the one it has by this name: overloads and setters are one with theirs."""
        home = self.scope
        known = home.members.get(name)
        if known is None or known.kind in ("const", "type"):
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
            made = Scope(f"{home.name}.{name}", kind, home.path, home, (first, node.end_lineno or first))
            made.say(home.name.removeprefix(home.module.name.rpartition(".")[0]), HOME)
            made.say(name, NAME)
            home.say(name, PART)
            home.members[name] = made
        return home.members[name]

    # Definitions. Those inside a function are part of that function.

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        decorators = {chain_of(decorator)[-1:] for decorator in node.decorator_list}
        if self.scope.is_function:
            scope = self.scope
            scope.bound.setdefault(node.name, ())
            self._parameters(scope, node.args)
        else:
            scope = self._member(node.name, "method" if self.scope.is_class else "function", node)
            scope.returns = scope.returns or annotation(node.returns)
            scope.is_property |= bool(decorators & {("property",), ("cached_property",)})
            self._parameters(scope, node.args)
            first = [*node.args.posonlyargs, *node.args.args][:1]
            if scope.kind == "method" and first and ("staticmethod",) not in decorators:
                is_class = ("classmethod",) in decorators or node.name in ("__new__", "__init_subclass__")
                scope.bound[first[0].arg] = (CLASS if is_class else INSTANCE,)
        self.enter(scope, [*node.decorator_list, node.args, unquoted(node.returns), *node.body])

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._parameters(self.scope, node.args)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if self.scope.is_function:
            scope = self.scope
            scope.bound.setdefault(node.name, ())
        else:
            scope = self._member(node.name, "class", node)
            scope.bases = [chain for base in node.bases if (chain := chain_of(base))]
            if any("Protocol" in base for base in scope.bases):
                scope.kind = "interface"
        self.enter(scope, [*node.decorator_list, *node.bases, *node.keywords, *node.body])

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            described = self.constant if self.scope.kind == "file" else None
            (described or self.scope).say(node.value.value, PROSE)
        self.visit(node.value)

    # Names and what they are given

    def _parameters(self, scope: Scope, parameters: ast.arguments) -> None:
        for one in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
            scope.bound.setdefault(one.arg, annotation(one.annotation))
            scope.say(one.arg, PART)
        for several in filter(None, (parameters.vararg, parameters.kwarg)):
            scope.bound.setdefault(several.arg, ())

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._bind(target, chain_of(node.value))
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._bind(node.target, annotation(node.annotation))
        self.enter(self.scope, [node.target, unquoted(node.annotation), node.value])

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._bind(node.target, chain_of(node.value))
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._bind(node.optional_vars, chain_of(node.context_expr))
        self.generic_visit(node)

    def _bind(self, target: ast.expr, chain: Chain) -> None:
        scope = self.scope
        match target:
            case ast.Name(id=name) if scope.is_class:
                _give(scope, name, scope, chain)
                scope.say(name, PART)
            case ast.Name(id=name):
                scope.bound[name] = scope.bound.get(name) or chain
                if scope.kind == "file" and name.strip("_")[:1].isupper():
                    self.constant = self._member(name, "const" if name.isupper() else "type", target)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                if scope.home is not None and scope.bound.get(name) == (INSTANCE,):
                    _give(scope.home, attribute, scope, chain)
            case _:
                pass

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            self.scope.imports[alias.asname or name] = (name, "")
            self.scope.module.imported[alias.name, ""] = None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        packages = self.package.split(".")
        above = packages[: len(packages) - node.level + 1] if node.level else []
        source = ".".join(filter(None, [*above, node.module]))
        for alias in node.names:
            self.scope.module.imported[source, alias.name] = None
            if alias.name == "*":
                self.scope.module.stars.append(source)
            else:
                self.scope.imports[alias.asname or alias.name] = (source, alias.name)

    # Expressions

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.scope.bound.setdefault(node.id, ())
        elif isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Await):
            chain, others = unwind(node)
            if chain:
                self.scope.chains[chain] = None
            for other in others:
                self.visit(other)
        else:
            super().visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self.enter(self.scope, [unquoted(node.annotation)])


def _give(owner: Scope, attribute: str, where: Scope, chain: Chain) -> None:
    _, known = owner.attributes.get(attribute, (owner, ()))
    if not known:
        owner.attributes[attribute] = (where, chain)


def unwind(node: ast.expr) -> tuple[Chain, list[ast.AST]]:
    """An expression's chain, () if it does not begin with a name, and the expressions hanging on it."""
    steps: list[str] = []
    others: list[ast.AST] = []
    while True:
        match node:
            case ast.Name(id=name):
                return (name, *reversed(steps)), others
            case ast.Attribute(value=inner, attr=name):
                steps.append(name)
            case ast.Call(func=inner, args=arguments, keywords=keywords):
                steps.append(CALL)
                others += [*arguments, *keywords]
            case ast.Subscript(value=inner, slice=key):
                steps.append(ITEM)
                others.append(key)
            case ast.Await(value=inner):
                pass
            case _:
                return (), [*others, node]
        node = inner


def chain_of(node: ast.expr | None) -> Chain:
    match node:
        case ast.Name() | ast.Attribute() | ast.Call() | ast.Await() | ast.Subscript():
            return unwind(node)[0]
        case ast.IfExp(body=one, orelse=other):
            return chain_of(one) or chain_of(other)
        case ast.BoolOp(values=values):
            return next(filter(None, map(chain_of, values)), ())
        case ast.NamedExpr(value=value):
            return chain_of(value)
        case _:
            return ()


def annotation(node: ast.expr | None) -> Chain:
    """What has this annotation is what calling it gives: of `store: Store` it is the chain of `Store()`."""
    match unquoted(node):
        case ast.BinOp(left=left, right=right):
            return annotation(left) or annotation(right)
        case ast.Subscript(value=value, slice=key):
            outside = chain_of(value)
            first = key.elts[0] if isinstance(key, ast.Tuple) and key.elts else key
            if outside[-1:] in (("type",), ("Type",)):
                return chain_of(unquoted(first))
            if _TRANSPARENT.intersection(outside[-1:]):
                return annotation(first)
            return (*outside, CALL) if outside else ()
        case (ast.Name() | ast.Attribute()) as plain:
            return (*unwind(plain)[0], CALL)
        case _:
            return ()


def unquoted(node: ast.expr | None) -> ast.expr | None:
    """An annotation, out of its quotes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError):
            return None
    return node
