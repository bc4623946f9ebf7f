"""A server process that does exactly what its script says, and knows nothing of Delta-MCP.

    python tests/support/fake_stdio.py '{"discover": "silent", ...}'

Every message it hears and every tool it runs is a line of the file that `log` names, over all its lives.

The script, all of it optional:

- `log`: a file.
- `discover`: `"answer"` (it is modern), `"silent"`, `"exit"` at any first message but `initialize`, an error code, or
  a whole error object.
- `initialize`: likewise; a list is what the server says in its successive lives.
- `protocol`: the revision that `initialize` is answered with.
- `capabilities`, `instructions`: as they are sent.
- `tools`: what is listed, as it is; `pages`: a list of such lists; `endless`: the cursor never ends.
- `later`: what is listed once the tool `change` was called.
- `ttl`: `ttlMs` of lists.
- `garbage`: lines that are written to stdout around every message.
- `stderr`: is written there at the start.
- `stubborn`: stays when stdin is closed, whatever SIGTERM says.
- `start`: seconds until it listens.
- `refuses_notifications`: answers them with an error, which has no id.
- `asks_roots`: asks for roots whenever it hears that they have changed.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"

ANY: dict[str, Any] = {"type": "object"}
TOOLS: list[Any] = [
    {"name": "echo", "description": "Gives back its arguments.", "inputSchema": ANY},
    {"name": "buy", "description": "Does something every time.", "inputSchema": ANY},
    {"name": "look", "inputSchema": ANY, "annotations": {"readOnlyHint": True}},
    {"name": "put", "inputSchema": ANY, "annotations": {"idempotentHint": True, "readOnlyHint": False}},
]


def command(**script: Any) -> list[str]:
    """The words that start it."""
    return [sys.executable, str(Path(__file__)), json.dumps(script, default=str)]


def messages(log: Path, method: str | None = None) -> list[dict[str, Any]]:
    """The messages it was sent, in order."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    messages = [line["heard"] for line in lines if "heard" in line]
    return [message for message in messages if method is None or message.get("method") == method]


def tools_run(log: Path) -> list[str]:
    """The tools that were really run, in order."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [line["ran"] for line in lines if "ran" in line]


class Fake:
    def __init__(self, script: dict[str, Any]) -> None:
        self.script = script
        self.queue: list[dict[str, Any]] = []
        self.listening: list[Any] = []
        self.modern = False
        self.changed = False
        self.questions = 0
        self.held: list[tuple[Any, Any]] = []
        log = script.get("log")
        self.log = Path(log) if log else None
        self.life = self.lines("started")
        self.note(started=os.getpid())

    # Its log

    def note(self, **entry: Any) -> None:
        if self.log:
            with self.log.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    def lines(self, key: str, value: Any = None) -> int:
        if not self.log or not self.log.exists():
            return 0
        entries = [json.loads(line) for line in self.log.read_text().splitlines()]
        return sum(key in entry and (value is None or entry[key] == value) for entry in entries)

    # Its messages

    def say(self, **message: Any) -> None:
        garbage = "".join(line + "\n" for line in self.script.get("garbage", ()))
        text = garbage + json.dumps({"jsonrpc": "2.0", **message}) + "\n" + garbage
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()

    def hear(self) -> dict[str, Any] | None:
        if self.queue:
            return self.queue.pop(0)
        return self.line()

    def line(self) -> dict[str, Any] | None:
        line = sys.stdin.buffer.readline()
        if not line:
            return None
        message: dict[str, Any] = json.loads(line)
        self.note(heard=message)
        return message

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The client's answer to a request of ours, whatever else it says meanwhile."""
        self.questions += 1
        id_ = f"q{self.questions}"
        self.say(id=id_, method=method, params=params)
        while True:
            message = self.line()
            if message is None:
                self.leave()
            if message.get("id") == id_ and "method" not in message:
                return message
            self.queue.append(message)

    def ask_all(self, questions: dict[str, Any]) -> dict[str, Any]:
        """The client's answers to requests that are all sent before one is answered."""
        for key, question in questions.items():
            self.say(id=f"all {key}", method=question["method"], params=question.get("params", {}))
        answers: dict[str, Any] = {}
        while len(answers) < len(questions):
            message = self.line()
            if message is None:
                self.leave()
            key = str(message.get("id")).removeprefix("all ")
            if "method" not in message and key in questions:
                answers[key] = message.get("result", message.get("error"))
            else:
                self.queue.append(message)
        return answers

    def leave(self) -> NoReturn:
        sys.stdout.flush()
        os._exit(3)

    # What it does

    def serve(self) -> None:
        first = True
        while (message := self.hear()) is not None:
            if first and self.script.get("discover") == "exit" and message.get("method") != "initialize":
                self.leave()
            first = False
            self.hear_one(message)

    def hear_one(self, message: dict[str, Any]) -> None:
        method, id_ = message.get("method"), message.get("id")
        params = message.get("params") or {}
        if method == "notifications/roots/list_changed" and self.script.get("asks_roots"):
            self.say(id="roots", method="roots/list")
        if method is not None and id_ is None and self.script.get("refuses_notifications"):
            self.say(id=None, error={"code": -32601, "message": f"Unknown method: {method}"})
        if method is None or id_ is None:
            return
        version = (params.get("_meta") or {}).get(META + "protocolVersion")
        if method == "server/discover":
            self.modern = self.modern or self.script.get("discover", "answer") == "answer"
            about = {"supportedVersions": [MODERN], "ttlMs": 0, "cacheScope": "private"}
            self.introduced(id_, self.script.get("discover", "answer"), about)
        elif method == "initialize":
            how = self.script.get("initialize", "answer")
            how = how[min(self.life, len(how) - 1)] if isinstance(how, list) else how
            self.introduced(id_, how, {"protocolVersion": self.script.get("protocol", "2025-11-25")})
        elif self.modern and version != MODERN:
            data = {"supported": [MODERN], "requested": version}
            self.say(id=id_, error={"code": -32022, "message": "Unsupported protocol version", "data": data})
        elif method == "tools/list":
            self.listed(id_, params)
        elif method == "tools/call":
            self.note(ran=params["name"])
            call = getattr(self, "call_" + params["name"], None) or self.call_echo
            call(id_, params)
        elif method == "ping":
            self.say(id=id_, result={})
        elif method == "subscriptions/listen":
            self.listening.append(id_)
            told = {"_meta": {META + "subscriptionId": id_}, "notifications": params.get("notifications", {})}
            self.say(method="notifications/subscriptions/acknowledged", params=told)
        elif method in ("resources/subscribe", "resources/unsubscribe") and not self.modern:
            self.say(id=id_, result={})
        elif not self.script.get("mute"):
            self.say(id=id_, error={"code": -32601, "message": f"Unknown method: {method}"})

    def introduced(self, id_: Any, how: Any, about: dict[str, Any]) -> None:
        if isinstance(how, int):
            self.say(id=id_, error={"code": how, "message": "Not that."})
        elif isinstance(how, dict):
            self.say(id=id_, error=how)
        elif how == "exit":
            self.leave()
        elif how == "answer":
            who = {"name": "fake", "version": "1"}
            capabilities = self.script.get("capabilities", {"tools": {"listChanged": True}})
            result = {**about, "resultType": "complete", "capabilities": capabilities, "serverInfo": who}
            if "instructions" in self.script:
                result["instructions"] = self.script["instructions"]
            self.say(id=id_, result={**result, "_meta": {META + "serverInfo": who}})

    def listed(self, id_: Any, params: dict[str, Any]) -> None:
        tools = self.script.get("later", TOOLS) if self.changed else self.script.get("tools", TOOLS)
        pages = [tools] if self.changed else self.script.get("pages", [tools])
        at = int(params.get("cursor") or 0)
        result: dict[str, Any] = {"resultType": "complete", "tools": pages[min(at, len(pages) - 1)]}
        result |= {"ttlMs": self.script.get("ttl", 0), "cacheScope": "private"}
        if at + 1 < len(pages) or self.script.get("endless"):
            result["nextCursor"] = str(0 if self.script.get("endless") == "same" else at + 1)
        self.say(id=id_, result=result)

    def reply(self, id_: Any, value: Any, **more: Any) -> None:
        content = [{"type": "text", "text": json.dumps(value)}]
        result = {"resultType": "complete", "content": content, "structuredContent": value, **more}
        self.say(id=id_, result=result)

    # Its tools

    def call_echo(self, id_: Any, params: dict[str, Any]) -> None:
        self.reply(id_, {"given": params.get("arguments"), "life": self.life})

    def call_buy(self, id_: Any, params: dict[str, Any]) -> None:
        self.fault(params["name"], params.get("arguments") or {})
        self.reply(id_, {"ran": self.lines("ran", params["name"]), "life": self.life})

    call_look = call_put = call_buy

    def fault(self, name: str, arguments: dict[str, Any]) -> None:
        """The first so many times (`deaths`) it dies, in the middle or where it is told to."""
        if self.lines("ran", name) <= arguments.get("deaths", 0):
            if arguments.get("half"):
                sys.stdout.buffer.write(b'{"jsonrpc": "2.0", "id": 1, "resu')
                sys.stdout.buffer.flush()
            self.leave()

    def call_last(self, id_: Any, params: dict[str, Any]) -> None:
        self.reply(id_, {"life": self.life})
        self.leave()

    def call_hang(self, id_: Any, params: dict[str, Any]) -> None:
        pass

    def call_late(self, id_: Any, params: dict[str, Any]) -> None:
        """Answers when somebody calls `release`."""
        self.held.append((id_, params.get("arguments")))

    def call_release(self, id_: Any, params: dict[str, Any]) -> None:
        for held, arguments in reversed(self.held):
            self.reply(held, {"given": arguments})
        self.held.clear()
        self.reply(id_, {})

    def call_fail(self, id_: Any, params: dict[str, Any]) -> None:
        self.say(id=id_, result={"content": [{"type": "text", "text": "It is broken."}], "isError": True})

    def call_refuse(self, id_: Any, params: dict[str, Any]) -> None:
        self.say(id=id_, error={"code": -32603, "message": "Not today.", "data": {"why": 1}})

    def call_raw(self, id_: Any, params: dict[str, Any]) -> None:
        """Answers with what it was told to."""
        self.say(id=id_, **params["arguments"]["answer"])

    def call_twice(self, id_: Any, params: dict[str, Any]) -> None:
        self.reply(id_, {"answer": 1})
        self.reply(id_, {"answer": 2})
        self.reply(987654, {"answer": 3})

    def call_progress(self, id_: Any, params: dict[str, Any]) -> None:
        token = (params.get("_meta") or {}).get("progressToken")
        if token is not None:
            self.say(method="notifications/progress", params={"progressToken": "nobody's", "progress": 99})
            for step in range(1, 4):
                told = {"progressToken": token, "progress": step, "total": 3, "message": f"step {step}"}
                self.say(method="notifications/progress", params=told)
        self.reply(id_, {"token": token is not None})

    def call_change(self, id_: Any, params: dict[str, Any]) -> None:
        self.changed = True
        self.announce("notifications/tools/list_changed")
        self.reply(id_, {})

    def call_log(self, id_: Any, params: dict[str, Any]) -> None:
        self.say(method="notifications/message", params={"level": "warning", "data": {"n": 1}, "logger": "fake"})
        self.say(method="notifications/message", params={"level": "shouted", "data": None})
        self.say(method="notifications/unheard/of", params={})
        self.reply(id_, {})

    def call_withdraw(self, id_: Any, params: dict[str, Any]) -> None:
        """Asks, wants no answer any more once it is called again, and answers both calls."""
        if not self.held:
            self.held.append((id_, None))
            self.say(id="w", method="elicitation/create", params={"message": "?", "requestedSchema": ANY})
            return
        self.say(method="notifications/cancelled", params={"requestId": "w"})
        self.call_release(id_, params)

    def call_murmur(self, id_: Any, params: dict[str, Any]) -> None:
        """Answers, and logs something afterwards."""
        self.reply(id_, {})
        level = params["arguments"]["then"]["level"]
        self.say(method="notifications/message", params={"level": level, "data": "later"})

    def announce(self, method: str) -> None:
        if not self.modern:
            self.say(method=method)
        for id_ in self.listening:
            self.say(method=method, params={"_meta": {META + "subscriptionId": id_}})

    def call_environment(self, id_: Any, params: dict[str, Any]) -> None:
        self.reply(id_, {"env": dict(os.environ), "cwd": str(Path.cwd()), "argv": sys.argv[2:]})

    def call_ask(self, id_: Any, params: dict[str, Any]) -> None:
        """Puts every question it is given and gives back the answers."""
        questions: dict[str, Any] = params["arguments"]["questions"]
        rounds = params["arguments"].get("rounds", 1)
        if not self.modern:
            answers = {}
            if params["arguments"].get("at_once"):
                answers = self.ask_all(questions)
                questions = {}
            for key, question in questions.items():
                answer = self.ask(question["method"], question.get("params", {}))
                answers[key] = answer.get("result", answer.get("error"))
            self.reply(id_, {"answers": answers})
            return
        state = params.get("requestState")
        at = int(state.removeprefix("état ")) if state else 0
        if at < rounds:
            result = {"resultType": "input_required", "inputRequests": questions, "requestState": f"état {at + 1}"}
            self.say(id=id_, result=result)
        else:
            self.reply(id_, {"answers": params.get("inputResponses")})


def main(argument: str) -> None:
    script = json.loads(argument)
    time.sleep(script.get("start", 0))
    if script.get("stderr"):
        print(script["stderr"], file=sys.stderr, flush=True)
    if script.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fake = Fake(script)
    fake.serve()
    fake.note(ended=True)
    if script.get("stubborn"):
        time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1])
