"""The draft of MCP-lite: its proto file, and the examples of its Appendix A, as they are printed.

The text is not part of this repository; tests find it in `DELTA_MCP_SHARED`.
"""

import json
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool, json_format, message_factory, struct_pb2, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message
from grpc_tools import protoc

_PROTO_PARTS = ("5.1 Service Definition", "5.2 Message Definitions", "5.3 ")
_FIELDS = re.compile(r'fields:\s*\{((?:\s*"\w+":\s*\{[^{}]*\})*)\s*\}')
_FIELD = re.compile(r'"(\w+)":\s*(\{[^{}]*\})')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


class HttpMessage(NamedTuple):
    """A request or a reply as printed; without a request line the path is empty."""

    path: str
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class SseEvent(NamedTuple):
    name: str
    data: Any


class Draft:
    """The text, and what tests take out of it."""

    def __init__(self, text: str) -> None:
        self._text = "\n".join(line.rstrip() for line in text.splitlines())
        pool = _compile(self._proto())
        self.classes: dict[str, type[Message]] = {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"mcplite.{name}"))
            for name in ("Empty", "Tool", "ToolsList", "ToolRequest", "ToolResponse", "ResponseMeta")
        }

    def http(self, section: str, label: str) -> HttpMessage:
        """The message under a label of a section: `http("A.1", "HTTP Request")`."""
        text = self._example(section, label)
        if not text.startswith("POST "):
            return HttpMessage("", {}, text)
        head, _, body = text.partition("\n\n")
        first, *rest = head.splitlines()
        return HttpMessage(first.split()[1], dict(line.split(": ", 1) for line in rest), body)

    def events(self, section: str, label: str) -> list[SseEvent]:
        found = re.findall(r"event: (\w+)\ndata: (.+)", self._example(section, label))
        return [SseEvent(name, json.loads(data)) for name, data in found]

    def messages(self, section: str, label: str) -> list[Any]:
        """The protobuf messages under a label, read as the classes that are named before their braces."""
        text = _COMMENT.sub("", self._example(section, label))
        names = "|".join(self.classes)
        starts = list(re.finditer(rf"\b({names}) ?\{{", text))
        ends = [*(start.start() for start in starts[1:]), len(text)]
        return [
            text_format.Parse(_text_format(_inside_braces(text[start.end() : end])), self.classes[start[1]]())
            for start, end in zip(starts, ends, strict=True)
        ]

    def status(self, section: str, label: str) -> dict[str, str]:
        """The code and the message of a gRPC status."""
        text = self._example(section, label)
        return dict(re.findall(r'^  (code|message): "?([^"\n]+)"?$', text, re.MULTILINE))

    def _example(self, section: str, label: str) -> str:
        appendix = self._text.partition("\nAppendix A")[2]
        [part] = re.findall(rf"^{re.escape(section)} .*?(?=^A\.\d |\Z)", appendix, re.MULTILINE | re.DOTALL)
        [found] = re.findall(
            rf"^{re.escape(label)}:$\n(.+?)(?=^(?:HTTP|gRPC) [\w ]+:$|\Z)", part, re.MULTILINE | re.DOTALL
        )
        return str(found).strip()

    def _proto(self) -> str:
        service, messages, end = _PROTO_PARTS
        first = self._text.partition(f"\n{service}\n")[2].partition(f"\n{messages}\n")[0]
        second = self._text.partition(f"\n{messages}\n")[2].partition(f"\n{end}")[0]
        before, package, after = first.partition("package mcplite;")
        # The draft leaves out the import that its own fields need.
        return f'{before}{package}\nimport "google/protobuf/struct.proto";\n{after}{second}'


def as_json(message: Any) -> Any:
    """A message as JSON, with the names of the proto file and only what is set."""
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _inside_braces(text: str) -> str:
    """What comes before the brace that closes the one before the text."""
    depth = 1
    for place, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return text[:place]
    raise ValueError("a brace is not closed")


def _text_format(text: str) -> str:
    """The draft writes a map as braces with keys, protobuf's text format as a list of entries."""

    def entries(match: re.Match[str]) -> str:
        return (
            "fields: [" + ", ".join(f'{{key: "{key}" value: {value}}}' for key, value in _FIELD.findall(match[1])) + "]"
        )

    return _FIELDS.sub(entries, text)


def _compile(proto: str) -> descriptor_pool.DescriptorPool:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "draft.proto").write_text(proto)
        out = Path(folder) / "set"
        command = ["protoc", f"-I{folder}", f"-I{Path(protoc.__file__).with_name('_proto')}"]
        assert protoc.main([*command, f"--descriptor_set_out={out}", "draft.proto"]) == 0
        files = FileDescriptorSet.FromString(out.read_bytes()).file
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return pool
