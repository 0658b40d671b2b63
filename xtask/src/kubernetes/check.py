"""Strict checks of manifests, which come from standard input as `kubectl kustomize` prints them.

An unknown field, a wrong type and a missing field are errors, in each version of Kubernetes that is named. A JobSet is read by its
model and written again, and must have lost nothing; the jobs in it are checked as jobs of the versions. Prints what was checked, or
one line for each error.
"""

import sys
import typing

import kubernetes_validate
import pydantic
import yaml
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

VERSIONS = sys.argv[1:]
# Fields of the one resource whose definition no package has (github.com/prometheus-operator), as far as they are used.
POD_MONITOR = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str, "labels": dict},
    "spec": {
        "selector": {"matchLabels": dict},
        "podMetricsEndpoints": [
            {"port": str, "path": str, "interval": str, "relabelings": [{"sourceLabels": list, "targetLabel": str}]}
        ],
    },
}

errors = []


def fail(where, what):
    errors.append(f"{where}: {what}")


def validate(document, where):
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(str(part) for part in error.path)
            fail(where, f"{version}: {path}: {error.message[:200]}")


def losses(before, after, path=""):
    """What `after` lacks of `before`, or has another value of."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key not in after:
                yield f"{path}.{key}"
            else:
                yield from losses(value, after[key], f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after)):
            yield from losses(*pair, f"{path}[{index}]")
    elif before != after and str(before) != str(after):
        yield path


def unknown(document, fields, path=""):
    """Fields that are not listed, or of another type."""
    if isinstance(fields, typing.Mapping):
        if not isinstance(document, dict):
            yield path
            return
        for key, value in document.items():
            if key not in fields:
                yield f"{path}.{key}"
            else:
                yield from unknown(value, fields[key], f"{path}.{key}")
    elif isinstance(fields, list):
        for index, value in enumerate(document):
            yield from unknown(value, fields[0], f"{path}[{index}]")
    elif not isinstance(document, fields):
        yield path


def check_job_set(document, where):
    try:
        model = JobsetV1alpha2JobSet.from_dict(document)
    except pydantic.ValidationError as error:
        return fail(where, str(error).replace("\n", " ")[:400])
    for path in losses(document, model.to_dict()):
        fail(where, f"{path} is no field of a JobSet")
    for job in document["spec"].get("replicatedJobs", []):
        at = f"{where}/{job['name']}"
        metadata = {"name": job["name"], **job["template"].get("metadata", {})}
        validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job["template"]["spec"]}, at)
        pod = job["template"]["spec"]["template"]["spec"]
        check_pod(pod, at)
        if pod.get("restartPolicy") != "Never":
            fail(at, "podFailurePolicy needs restartPolicy: Never")


def check_pod(pod, where):
    """What a schema does not say: names that are used must be there."""
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    for container in pod["containers"]:
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if container[probe]["httpGet"]["port"] not in ports:
                fail(where, f"{probe} asks a port without a name")
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes | CLAIMS:
                fail(where, f"there is no volume {mount['name']}")
        for source in container["envFrom"]:
            if source["configMapRef"]["name"] not in NAMES["ConfigMap"]:
                fail(where, f"there is no ConfigMap {source['configMapRef']['name']}")
    if pod["serviceAccountName"] not in NAMES["ServiceAccount"]:
        fail(where, f"there is no ServiceAccount {pod['serviceAccountName']}")
    for volume in pod.get("volumes", []):
        claim = volume["persistentVolumeClaim"]["claimName"]
        if claim not in NAMES["PersistentVolumeClaim"]:
            fail(where, f"there is no PersistentVolumeClaim {claim}")


def members(documents, role):
    """Members of a role that the manifests start."""
    count = 0
    for document in documents:
        if document["kind"] == "StatefulSet" and document["metadata"]["name"] == f"libra-{role}":
            count += document["spec"]["replicas"]
        for job in document["spec"].get("replicatedJobs", []) if document["kind"] == "JobSet" else []:
            if job["name"] == role:
                count += job.get("replicas", 1) * job["template"]["spec"].get("parallelism", 1)
    return count


documents = [document for document in yaml.safe_load_all(sys.stdin) if document]
NAMES = {}
CLAIMS = set()
for document in documents:
    NAMES.setdefault(document["kind"], set()).add(document["metadata"]["name"])
    if document["kind"] == "StatefulSet":
        CLAIMS |= {claim["metadata"]["name"] for claim in document["spec"]["volumeClaimTemplates"]}
for document in documents:
    kind = document["kind"]
    where = f"{kind}/{document['metadata']['name']}"
    if kind == "JobSet":
        check_job_set(document, where)
    elif kind == "PodMonitor":
        for path in unknown(document, POD_MONITOR):
            fail(where, f"{path} is no field of a PodMonitor")
    else:
        validate(document, where)
    if kind == "StatefulSet":
        check_pod(document["spec"]["template"]["spec"], where)
    if kind == "ConfigMap":
        for role, variable in [("server", "LIBRA_SERVERS"), ("switch", "LIBRA_SWITCHES"), ("worker", "LIBRA_WORKERS")]:
            if members(documents, role) != int(document["data"][variable]):
                fail(where, f"{variable} is {document['data'][variable]}, and {members(documents, role)} are started")

if errors:
    sys.exit("\n".join(errors))
print(f"{len(documents)} resources")
