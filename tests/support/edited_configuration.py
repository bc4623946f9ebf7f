"""A gateway's configuration that is edited at random: what it says at any time, and mistakes with what is told."""

import json
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tests.support.paths import ROOT

PROGRAM = str(ROOT / "tests" / "support" / "named_server.py")
NAMES = "abcdef"
_INCLUDE_LINE = 3


@dataclass(frozen=True)
class Edited:
    """A server of the configuration. Its mark is another one whenever it is another process."""

    mark: str
    is_included: bool = False
    denies_wait: bool = False
    idle_seconds: int = 600
    max_tokens: int = 5000


@dataclass
class EditedConfiguration:
    """The files of a gateway, a version for each state that they are to have."""

    folder: Path
    mark: str
    """What the marks of all servers begin with."""
    random: Random
    versions: list[dict[str, Edited]] = field(default_factory=list)
    count: int = 0

    @property
    def servers(self) -> dict[str, Edited]:
        return self.versions[-1]

    @property
    def toml(self) -> Path:
        return self.folder / "gateway.toml"

    @property
    def json(self) -> Path:
        return self.folder / "mcp.json"

    def new_mark(self) -> str:
        self.count += 1
        return f"{self.mark}-{self.count}-"

    def tools(self) -> list[str]:
        """What the gateway is to list, in its order."""
        ordered = sorted(self.servers.items(), key=lambda pair: pair[1].is_included)
        return [f"{name}_{tool}" for name, one in ordered for tool in _tools(one)]

    def text(self) -> str:
        lines = ["# edited at random", "", 'include = "mcp.json"', 'disclosure = "full"', "prefix = true"]
        lines += ["[defaults]", 'promise = "never"']
        for name, one in self.servers.items():
            lines += ["", f"[servers.{name}]"]
            if not one.is_included:
                lines += [f"{key} = {json.dumps(value)}" for key, value in _entry(name, one).items() if key != "env"]
                lines += [f"env = {{ SERVER_MARK = {json.dumps(one.mark)} }}"]
            lines += [f"idle_seconds = {one.idle_seconds}", f"results = {{ max_tokens = {one.max_tokens} }}"]
            if one.denies_wait:
                lines += ['deny = ["wait"]']
        return "\n".join(lines) + "\n"

    def included_text(self) -> str:
        servers = {name: _entry(name, one) for name, one in self.servers.items() if one.is_included}
        return json.dumps({"mcpServers": servers}, indent=2)

    def write(self) -> None:
        """Writes what is right, both files at once as far as others can see."""
        for path, text in ((self.json, self.included_text()), (self.toml, self.text())):
            part = path.with_suffix(".part")
            part.write_text(text)
            part.replace(path)

    def next_version(self) -> set[str]:
        """Adds a version that differs in one thing, and returns the servers that are another process in it, or gone."""
        servers, random = dict(self.servers), self.random
        absent = [name for name in NAMES if name not in servers]
        name = random.choice([*servers]) if servers else ""
        kinds = ["mark", "mark", "remove", "deny", "move", "idle", "tokens", "order"] if servers else []
        kind = random.choice([*kinds, *(["add"] * 3 if absent else [])])
        lost = set[str]()
        match kind:
            case "add":
                servers[random.choice(absent)] = Edited(self.new_mark(), random.random() < 0.5)
            case "remove":
                del servers[name]
                lost.add(name)
            case "mark":
                servers[name] = replace(servers[name], mark=self.new_mark())
                lost.add(name)
            case "deny":
                servers[name] = replace(servers[name], denies_wait=not servers[name].denies_wait)
            case "move":  # the server of an included file is started in that file's folder, and so is one of our own
                servers[name] = replace(servers[name], is_included=not servers[name].is_included)
            case "idle":
                servers[name] = replace(servers[name], idle_seconds=random.randrange(300, 900))
            case "tokens":
                servers[name] = replace(servers[name], max_tokens=random.randrange(1000, 9000))
            case _:  # another order
                pairs = [*servers.items()]
                random.shuffle(pairs)
                servers = dict(pairs)
        self.versions.append(servers)
        return lost

    def write_mistake(self) -> list[str]:
        """Writes something that is wrong into one of the files; returns what has to be told, the line among it."""
        self.write()  # without the last mistake
        lines, random = self.text().splitlines(), self.random
        number = self.count = self.count + 1
        end = len(lines) + 1
        match random.randrange(8):
            case 0:
                at = random.randrange(1, end)
                lines.insert(at - 1, f"= {number}")
                told = [f"line {at}"]
            case 1:
                lines += [f"[servers.m{number}]", 'command = "never']
                told = [f"line {end + 1}"]
            case 2:
                lines += [f"[servers.m{number}]", 'command = "x"', f"nothing_{number} = 1"]
                told = [f"line {end + 2}: servers.m{number}.nothing_{number} is no key"]
            case 3:
                lines += [f"[servers.m{number}]", 'timeout = "long"', 'command = "x"']
                told = [f"line {end + 1}: servers.m{number}.timeout must be a number"]
            case 4:
                lines += [f"[servers.m{number}]", "read_only = true"]
                told = [f"line {end}: servers.m{number} needs a command"]
            case 5:
                lines += [f"[servers.m{number}]", 'url = "ftp://example.com"', f"[servers.n{number}]", "allow = 1"]
                told = [f"line {end}: servers.m{number} is wrong", f"line {end + 3}: servers.n{number}.allow must be"]
            case 6:
                included = self.included_text().splitlines()
                at = random.randrange(2, len(included) + 1)
                included.insert(at - 1, f"nothing {number}")
                self.json.write_text("\n".join(included))
                return [f"line {_INCLUDE_LINE}: include is wrong", f"line {at} "]
            case _:
                self.json.unlink()
                return [f"line {_INCLUDE_LINE}: include is wrong: There is no file {self.json}"]
        self.toml.write_text("\n".join(lines) + "\n")
        return told


def _tools(one: Edited) -> list[str]:
    return ["who"] if one.denies_wait else ["who", "wait"]


def _entry(name: str, one: Edited) -> dict[str, object]:
    return {"command": sys.executable, "args": ["-S", PROGRAM, name, ""], "env": {"SERVER_MARK": one.mark}}
