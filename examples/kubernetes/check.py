"""Hold manifests to the schemas of their kinds, strictly: a field that a kind does not have is an error.

    check.py MANIFEST...

The schemas are in the custom resource definitions of pinned Go modules, which `go mod download` fetches and
verifies by their checksums.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

_TRAINER = ("github.com/kubeflow/trainer/v2@v2.0.0", "manifests/base/crds/trainer.kubeflow.org_")
# For each kind the Go module, and the file in it, with the definition.
DEFINITIONS = {
    "PyTorchJob": (
        "github.com/kubeflow/training-operator@v1.8.1",
        "manifests/base/crds/kubeflow.org_pytorchjobs.yaml",
    ),
    "TrainJob": (_TRAINER[0], _TRAINER[1] + "trainjobs.yaml"),
    "TrainingRuntime": (_TRAINER[0], _TRAINER[1] + "trainingruntimes.yaml"),
    "JobSet": (
        "sigs.k8s.io/jobset@v0.8.2",
        "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
    ),
}


def folder(module: str) -> Path:
    """Return where a Go module lies, after fetching it."""
    with tempfile.TemporaryDirectory() as outside:  # where no go.mod of ours can change
        ran = subprocess.run(
            ["go", "mod", "download", "-json", module],
            cwd=outside,
            capture_output=True,
            text=True,
            timeout=300,
        )
    said = json.loads(ran.stdout or "{}")
    if ran.returncode != 0 or "Dir" not in said:
        sys.exit(f"{module} was not fetched: {said.get('Error') or ran.stderr.strip()}")
    return Path(said["Dir"])


def schema(kind: str, version: str) -> dict[str, Any]:
    """Return the schema of a kind, which allows no other fields than it names."""
    module, file = DEFINITIONS[kind]
    definition = yaml.load((folder(module) / file).read_text(), yaml.CSafeLoader)
    group, served = definition["spec"]["group"], {v["name"]: v for v in definition["spec"]["versions"]}
    if not version.startswith(f"{group}/") or version.split("/")[1] not in served:
        allowed = ", ".join(f"{group}/{v}" for v in served)
        sys.exit(f"{kind}: apiVersion {version} is not allowed: want {allowed}")
    found = served[version.split("/")[1]]["schema"]["openAPIV3Schema"]
    found["properties"]["metadata"] = {  # definitions only say that metadata is an object
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"},
            "namespace": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["name"],
    }
    close(found)
    found["required"] = sorted({*found.get("required", []), "apiVersion", "kind", "metadata", "spec"})
    return found


def close(node: Any) -> None:
    """Forbid fields that a schema, or one below it, does not name; allow number or text where it says so."""
    if isinstance(node, list):
        for each in node:
            close(each)
        return
    if not isinstance(node, dict):
        return
    if node.pop("x-kubernetes-int-or-string", False):
        node["type"] = ["integer", "string"]
        node.pop("anyOf", None)
    open_ended = node.get("x-kubernetes-preserve-unknown-fields", False)
    if isinstance(node.get("properties"), dict) and "additionalProperties" not in node and not open_ended:
        node["additionalProperties"] = False
    for name, below in node.items():
        if name == "properties":
            for each in below.values():
                close(each)
        elif name in ("items", "additionalProperties"):
            close(below)


def faults(manifest: dict[str, Any]) -> list[str]:
    """Return the faults of a manifest, each with the path to it."""
    kind = manifest.get("kind", "")
    if kind not in DEFINITIONS:
        return [f"kind {kind!r} is not one of {', '.join(sorted(DEFINITIONS))}"]
    validator = Draft202012Validator(schema(kind, manifest.get("apiVersion", "")))
    return [f"{kind}: {error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]


def main() -> None:
    """Check the manifests that are named."""
    if not sys.argv[1:]:
        sys.exit("check.py: want names of manifests")
    wrong = []
    for path in sys.argv[1:]:
        for manifest in yaml.safe_load_all(Path(path).read_text()):
            found = faults(manifest)
            wrong += [f"{path}: {fault}" for fault in found]
            if not found:
                module, _ = DEFINITIONS[manifest["kind"]]
                print(f"{path}: {manifest['kind']} {manifest['metadata']['name']} is as {module} has it")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
