"""A server of the handshake era over stdio that repeats a text wherever a server can say something.

    python tests/support/echoing_server.py FILE [anything]

FILE has a JSON list of texts. What a tool of it does is its name.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

ANY: dict[str, Any] = {"type": "object"}
TOOLS = ("error", "failure", "result", "progress", "log", "ask", "refused_question", "leave")


class Echo:
    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.all = " ".join(texts)

    def say(self, **message: Any) -> None:
        sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        sys.stdout.buffer.flush()

    def hear(self) -> dict[str, Any]:
        line = sys.stdin.buffer.readline()
        if not line:
            sys.exit()
        message: dict[str, Any] = json.loads(line)
        return message

    def serve(self) -> None:
        print("\n".join(self.texts), file=sys.stderr, flush=True)
        while True:
            message = self.hear()
            if "id" in message and "method" in message:
                answer = getattr(self, message["method"].replace("/", "_"), None)
                if answer is None:
                    self.say(id=message["id"], error={"code": -32601, "message": f"Unknown: {self.all}"})
                else:
                    answer(message["id"], message.get("params", {}))

    def initialize(self, id_: Any, params: dict[str, Any]) -> None:
        info = {"name": "echo", "version": self.texts[0], "title": self.all}
        has: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}, "completions": {}}
        about = {"protocolVersion": "2025-11-25", "capabilities": has, "serverInfo": info, "instructions": self.all}
        self.say(id=id_, result=about)

    def logging_setLevel(self, id_: Any, params: dict[str, Any]) -> None:
        self.say(id=id_, result={})

    def tools_list(self, id_: Any, params: dict[str, Any]) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "string", "description": self.all}}}
        tools = [{"name": name, "description": self.all, "inputSchema": schema} for name in TOOLS]
        self.say(id=id_, result={"tools": [*tools, {"name": f"get {self.texts[0]}", "inputSchema": ANY}]})

    def resources_list(self, id_: Any, params: dict[str, Any]) -> None:
        named = [{"uri": f"echo://{self.texts[0]}", "name": "x"}, {"uri": "echo://one", "name": self.all}]
        self.say(id=id_, result={"resources": named})

    def resources_templates_list(self, id_: Any, params: dict[str, Any]) -> None:
        self.say(id=id_, result={"resourceTemplates": [{"uriTemplate": "echo://x/{id}", "name": self.all}]})

    def prompts_list(self, id_: Any, params: dict[str, Any]) -> None:
        self.say(id=id_, result={"prompts": [{"name": "one", "description": self.all}, {"name": self.texts[0]}]})

    def resources_read(self, id_: Any, params: dict[str, Any]) -> None:
        if params["uri"] != "echo://one":
            self.say(id=id_, error={"code": -32002, "message": self.all, "data": {"uri": self.texts[0]}})
            return
        self.say(id=id_, result={"contents": [{"uri": "echo://one", "text": self.all}]})

    def prompts_get(self, id_: Any, params: dict[str, Any]) -> None:
        said = {"role": "user", "content": {"type": "text", "text": self.all}}
        self.say(id=id_, result={"messages": [said], "description": self.all})

    def completion_complete(self, id_: Any, params: dict[str, Any]) -> None:
        self.say(id=id_, result={"completion": {"values": self.texts[:50]}})

    def tools_call(self, id_: Any, params: dict[str, Any]) -> None:
        content = [{"type": "text", "text": self.all}]
        match params["name"]:
            case "error":
                data = {"texts": self.texts, self.texts[0]: {"nested": [self.all]}}
                self.say(id=id_, error={"code": -32603, "message": self.all, "data": data})
                return
            case "failure":
                result = {"content": content, "structuredContent": {"texts": self.texts}, "isError": True}
                self.say(id=id_, result=result)
                return
            case "progress":
                for at, text in enumerate(self.texts):
                    token = params["_meta"]["progressToken"]
                    told = {"progressToken": token, "progress": at + 1, "message": text}
                    self.say(method="notifications/progress", params=told)
            case "log":
                told = {"level": "error", "logger": self.texts[0], "data": {"texts": self.texts, self.texts[1]: 1}}
                self.say(method="notifications/message", params=told)
                self.say(method="notifications/message", params={"level": "error", "data": self.all})
            case "ask":
                form = {"type": "object", "properties": {"a": {"type": "string", "title": self.all}}}
                asked = {"message": self.all, "requestedSchema": form}
                self.say(id="q", method="elicitation/create", params=asked)
                self.hear()
            case "refused_question":
                self.say(id="q", method=f"x/{self.all}", params={})
                self.hear()
            case "leave":
                print(f"Error: {self.texts[-1]}", file=sys.stderr, flush=True)
                os._exit(3)
            case "result":
                result = {"content": content, "structuredContent": {"texts": self.texts, self.texts[0]: 1}}
                self.say(id=id_, result=result)
                return
            case _:
                pass
        self.say(id=id_, result={"content": []})


if __name__ == "__main__":
    Echo(json.loads(Path(sys.argv[1]).read_text())).serve()
