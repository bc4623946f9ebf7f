"""The files of deploy/: each passes the linter of its kind, and they agree with each other and with the program."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from bench.hostile.stores import SkippedError
from bench.replicas.nginx import nginx_command
from tests.support.paths import PROGRAM, ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KUBERNETES_VERSIONS = ("1.31", "1.37")
UNIT = DEPLOY / "systemd" / "delta-mcp@.service"
WORKER_UNIT = DEPLOY / "systemd" / "delta-mcp-worker.service"
MAX_EXPOSURE = 2.0
"""systemd's own measure of what a unit may do: 10 is everything, and below 2 it calls a service safe."""


def read_yaml(path: Path) -> list[Any]:
    yaml: Any = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return list(yaml.safe_load_all(path.read_text()))


def objects(kind: str) -> dict[str, Any]:
    """The Kubernetes objects of a kind, by their names."""
    found = [item for path in KUBERNETES for item in read_yaml(path)]
    return {item["metadata"]["name"]: item for item in found if item["kind"] == kind}


def linter(name: str) -> str:
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return shutil.which(name, path=beside) or pytest.skip(f"there is no {name} on PATH")


def lint(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@cache
def known_options(command: str) -> set[str]:
    described = subprocess.run([PROGRAM, command, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"--[a-z-]+", described))


def replica_options() -> dict[str, set[str]]:
    """The options that each way to deploy gives to a replica."""
    compose = read_yaml(DEPLOY / "compose.yaml")[0]["services"]["replica-1"]["command"]
    [container] = objects("Deployment")["delta-mcp"]["spec"]["template"]["spec"]["containers"]
    shipped = (DEPLOY / "Dockerfile").read_text().split("ENTRYPOINT")[1]
    image = set(re.findall(r"--[a-z-]+", shipped))
    return {
        "compose": image | {word.partition("=")[0] for word in compose},
        "kubernetes": image | {word.partition("=")[0] for word in container["args"]},
        "systemd": unit_options(UNIT),
    }


def worker_options() -> dict[str, set[str]]:
    """The options that each way to deploy gives to a worker."""
    compose = read_yaml(DEPLOY / "compose.yaml")[0]["services"]["worker"]["command"]
    [container] = objects("Deployment")["delta-mcp-worker"]["spec"]["template"]["spec"]["containers"]
    return {
        "compose": {word.partition("=")[0] for word in compose},
        "kubernetes": {word.partition("=")[0] for word in container["args"]},
        "systemd": unit_options(WORKER_UNIT),
    }


def unit_options(unit: Path) -> set[str]:
    return set(re.findall(r"--[a-z-]+", unit.read_text().split("ExecStart=")[1].split("\nLoadCredential")[0]))


# Each file by itself


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.stem)
def test_kubernetes_takes_the_manifests(path, version):
    kubernetes_validate: Any = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for item in read_yaml(path):
        if item["kind"] == "Kustomization":  # of kubectl's own, which the published schemas leave out
            assert {path.name for path in KUBERNETES} - {path.name} == set(item["resources"])
        else:
            kubernetes_validate.validate(item, version, strict=True)


def test_the_compose_file_is_as_its_specification_says():
    package = pytest.importorskip("check_jsonschema", reason="check-jsonschema, which has the schema, is not installed")
    schemas = resources.files(package) / "builtin_schemas" / "vendor"
    schema = json.loads((schemas / "compose-spec.json").read_text())
    [compose] = read_yaml(DEPLOY / "compose.yaml")
    jsonschema.validate(compose, schema)


def test_hadolint_finds_nothing_in_the_dockerfile():
    lint(linter("hadolint"), str(DEPLOY / "Dockerfile"))


def test_nginx_takes_its_configuration(tmp_path):
    try:
        command = nginx_command(tmp_path, 8080, [8001, 8002, 8003])
    except SkippedError as skipped:
        pytest.skip(str(skipped))
    lint(*command, "-t")


def test_systemd_takes_the_units(tmp_path):
    """With a program that is there, for systemd looks whether it is."""
    analyze = linter("systemd-analyze")
    for path in (DEPLOY / "systemd").iterdir():
        text = path.read_text().replace("/opt/delta-mcp/bin/delta-mcp ", f"{PROGRAM} ")
        (tmp_path / path.name).write_text(text)
    assert lint(analyze, "verify", str(tmp_path / "delta-mcp.target"), str(tmp_path / "delta-mcp@8001.service")) == ""
    for unit in (UNIT, WORKER_UNIT):
        told = subprocess.run(
            [analyze, "security", "--offline=true", str(tmp_path / unit.name)], capture_output=True, text=True
        ).stdout
        exposure = re.search(r"exposure level for .*: ([\d.]+)", told)
        assert exposure and float(exposure[1]) < MAX_EXPOSURE, told


# All of them together


def test_the_program_has_every_option_and_each_way_gives_the_same():
    by_way = replica_options()
    who_may_call = {"--auth", "--resource"}
    assert by_way["compose"] - who_may_call == by_way["kubernetes"] - who_may_call == by_way["systemd"] - who_may_call
    assert all("--auth" in options and options <= known_options("serve") for options in by_way.values())


def test_each_way_gives_a_worker_the_store_and_the_keys_of_the_replicas():
    by_way = worker_options()
    assert by_way["compose"] == by_way["kubernetes"] == by_way["systemd"]
    assert {"--state-key-file"} <= by_way["systemd"] <= known_options("worker")
    assert all("--no-worker" in options for options in replica_options().values())


def test_each_way_gives_the_store_in_a_variable_so_that_no_command_line_shows_its_password():
    [compose] = read_yaml(DEPLOY / "compose.yaml")
    for name in ("replica-1", "worker"):
        assert compose["services"][name]["env_file"] == "./store.env"
        [container] = objects("Deployment")[{"replica-1": "delta-mcp"}.get(name, "delta-mcp-worker")]["spec"][
            "template"
        ]["spec"]["containers"]
        [variable] = container["env"]
        assert variable["name"] == "DELTA_MCP_STORE" and "secretKeyRef" in variable["valueFrom"]
    assert "deploy/store.env" in (ROOT / ".gitignore").read_text()
    for unit in (UNIT, WORKER_UNIT):
        assert "\nEnvironmentFile=/etc/delta-mcp/store.env\n" in unit.read_text()
    for options in (*replica_options().values(), *worker_options().values()):
        assert "--store" not in options


def test_redis_has_the_same_configuration_everywhere():
    written = (DEPLOY / "redis" / "redis.conf").read_text()
    assert objects("ConfigMap")["delta-mcp-redis"]["data"]["redis.conf"] == written
    redis = read_yaml(DEPLOY / "compose.yaml")[0]["services"]["redis"]
    assert "./redis/redis.conf:/etc/redis/redis.conf:ro" in redis["volumes"]
    named = set(re.findall(r"/run/secrets/(\S+)", written))
    [secrets] = [
        volume["projected"]["sources"]
        for volume in objects("StatefulSet")["delta-mcp-redis"]["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "secrets"
    ]
    mounted = {item["path"] for source in secrets for item in source["secret"]["items"]}
    assert set(redis["secrets"]) == named and mounted == {*named, "redis-ca"}


def test_the_image_runs_as_nobody_and_has_what_it_copies():
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["10001:10001"]
    assert "HEALTHCHECK" in text
    allowed = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    copied = {word for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for word in line.split()[:-1]}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_nginx_has_the_replicas_of_compose_and_of_systemd():
    [compose] = read_yaml(DEPLOY / "compose.yaml")
    replicas = [name for name in compose["services"] if name.startswith("replica-")]
    named = re.findall(r"^server (\S+):8000 ", (DEPLOY / "nginx" / "replicas.compose.conf").read_text(), re.MULTILINE)
    assert named == replicas and len(replicas) == 3
    ports = re.findall(r"^server 127\.0\.0\.1:(\d+) ", (DEPLOY / "nginx" / "replicas.conf").read_text(), re.MULTILINE)
    assert ports == re.findall(r"delta-mcp@(\d+)\.service", (DEPLOY / "systemd" / "delta-mcp.target").read_text())
    assert len(ports) == 3


def test_the_services_of_kubernetes_find_their_pods():
    pods = {
        name: item["spec"]["template"]["metadata"]["labels"]
        for kind in ("Deployment", "StatefulSet")
        for name, item in objects(kind).items()
    }
    assert {name: item["spec"]["selector"] for name, item in objects("Service").items()} == {
        name: labels
        for name, labels in pods.items()
        if name != "delta-mcp-worker"  # which listens nowhere
    }
    [budget] = objects("PodDisruptionBudget").values()
    [policy] = objects("NetworkPolicy").values()
    assert budget["spec"]["selector"]["matchLabels"] == pods["delta-mcp"]
    assert budget["spec"]["minAvailable"] < objects("Deployment")["delta-mcp"]["spec"]["replicas"]
    assert policy["spec"]["podSelector"]["matchLabels"] == pods["delta-mcp-redis"]
    [reached_from] = policy["spec"]["ingress"]
    allowed = [peer["podSelector"]["matchLabels"] for peer in reached_from["from"]]
    assert allowed == [pods["delta-mcp"], pods["delta-mcp-worker"]]
    [rule] = objects("Ingress")["delta-mcp"]["spec"]["rules"]
    assert {path["backend"]["service"]["name"] for path in rule["http"]["paths"]} == {"delta-mcp"}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_no_container_of_kubernetes_may_more_than_it_needs(kind):
    for name, item in objects(kind).items():
        pod = item["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert ("readinessProbe" in container) == (name in objects("Service"))


def test_no_secret_is_in_the_files():
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            assert not re.search(r"\b[0-9a-f]{64}\b", path.read_text()), path
