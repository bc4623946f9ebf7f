import importlib.resources
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from deltamcp.transports.grpc.requests import PROMPTS_SERVICE, SERVICE, lite_messages, read_descriptors
from tests.support.paths import ROOT

FILES = ("mcplite.proto", "mcplite_ext.proto")


def fields(name):
    return {field.name: field.number for field in lite_messages().pool.FindMessageTypeByName(name).fields}


def test_the_descriptors_are_those_of_the_proto_files(tmp_path):
    folder = Path(str(importlib.resources.files("deltamcp.wire")))
    out = tmp_path / "compiled.binpb"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={out}", *FILES]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()) == read_descriptors()


def test_ml_100_the_service_has_three_methods():
    service = lite_messages().pool.FindServiceByName(SERVICE)
    found = {
        method.name: (method.input_type.full_name, method.output_type.full_name, method.server_streaming)
        for method in service.methods
    }
    assert found == {
        "GetTools": ("mcplite.Empty", "mcplite.ToolsList", False),
        "CallTool": ("mcplite.ToolRequest", "mcplite.ToolResponse", False),
        "CallToolStream": ("mcplite.ToolRequest", "mcplite.ToolResponse", True),
    }
    assert not any(method.client_streaming for method in service.methods)


def test_ml_101_the_messages_have_the_specifications_fields():
    assert fields("mcplite.Tool") == {"name": 1, "type": 2, "description": 3, "input_schema": 4, "definition_json": 100}
    assert fields("mcplite.ToolsList") == {"tools": 1}
    assert {name: number for name, number in fields("mcplite.ToolRequest").items() if number < 16} == {
        "name": 1,
        "arguments": 2,
    }
    assert {name: number for name, number in fields("mcplite.ToolResponse").items() if number < 16} == {
        "result": 1,
        "meta": 2,
    }


def test_ml_102_additions_have_numbers_from_16_and_one_enum_value():
    found = fields("mcplite.ResponseMeta")
    assert {name: number for name, number in found.items() if number < 16} == {
        "response_type": 1,
        "promise_token": 2,
        "timestamp": 3,
        "processing_time_ms": 4,
    }
    values = lite_messages().pool.FindEnumTypeByName("mcplite.ResponseType").values
    assert {value.name: value.number for value in values} == {
        "ANSWER": 0,
        "PROMISE": 1,
        "ELICITATION": 2,
        "FAILURE": 3,
        "REQUEST_FOR_MORE_RESOURCE": 4,
    }


def test_ml_123_prompts_are_a_service_apart():
    assert [method.name for method in lite_messages().pool.FindServiceByName(PROMPTS_SERVICE).methods] == ["GetPrompts"]


def test_the_wheel_has_the_data(tmp_path):
    pytest.importorskip("hatchling.build", reason="hatchling is not installed")
    code = f"import os, hatchling.build; os.chdir({str(ROOT)!r}); print(hatchling.build.build_wheel({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        names = wheel.namelist()
    assert {f"deltamcp/wire/{name}" for name in (*FILES, "mcplite.binpb")} <= set(names)
