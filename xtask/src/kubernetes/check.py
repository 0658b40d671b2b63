"""Strict checks of manifests, which come from standard input as `kubectl kustomize` prints them.

An unknown field, a wrong type and a missing field are errors, in each version of Kubernetes that is named. A JobSet, and what is of
the Kubeflow Trainer, is read by its model and written again, and must have lost nothing; jobs and pods in it are checked as those of
the versions. Prints what was checked, or one line for each error.
"""

import sys
import typing

import kubernetes_validate
import pydantic
import yaml
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
from kubeflow_trainer_api.models.trainer_v1alpha1_training_runtime import TrainerV1alpha1TrainingRuntime

VERSIONS = sys.argv[1:]
MODELS = {
    "JobSet": JobsetV1alpha2JobSet,
    "TrainingRuntime": TrainerV1alpha1TrainingRuntime,
    "TrainJob": TrainerV1alpha1TrainJob,
}
# Label of the job whose number of pods a TrainJob decides, and the name that the trainer wants of its container.
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
NODE = "node"
# Fields of resources whose definitions no package has (github.com/prometheus-operator, ray-project/kuberay), as far as they are used.
# Pods are checked apart.
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

NODES = {"rayStartParams": dict, "template": {"spec": dict}}
RAY_CLUSTER = {
    "rayVersion": str,
    "enableInTreeAutoscaling": bool,
    "headGroupSpec": NODES,
    "workerGroupSpecs": [{"groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int, **NODES}],
}
RAY = {
    "RayCluster": RAY_CLUSTER,
    "RayJob": {
        "clusterSelector": {"ray.io/cluster": str},
        "rayClusterSpec": RAY_CLUSTER,
        "submissionMode": str,
        "backoffLimit": int,
        "shutdownAfterJobFinishes": bool,
        "entrypoint": str,
        "runtimeEnvYAML": str,
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


def check_model(document, where):
    """Reads a resource by its model, and writes it again."""
    try:
        model = MODELS[document["kind"]].from_dict(document)
    except pydantic.ValidationError as error:
        return fail(where, str(error).replace("\n", " ")[:400])
    for path in losses(document, model.to_dict()):
        fail(where, f"{path} is no field of a {document['kind']}")


def job_set(document):
    """The JobSet that a resource is, or is the template of."""
    if document["kind"] == "TrainingRuntime":
        return document["spec"]["template"]["spec"]
    return document["spec"] if document["kind"] == "JobSet" else {}


def check_jobs(document, where):
    for job in job_set(document).get("replicatedJobs", []):
        at = f"{where}/{job['name']}"
        metadata = {"name": job["name"], **job["template"].get("metadata", {})}
        validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job["template"]["spec"]}, at)
        pod = job["template"]["spec"]["template"]["spec"]
        check_pod(pod, at)
        if pod.get("restartPolicy") != "Never":
            fail(at, "podFailurePolicy needs restartPolicy: Never")
        names = {container["name"] for container in pod["containers"]}
        for rule in job["template"]["spec"]["podFailurePolicy"]["rules"]:
            if (name := rule.get("onExitCodes", {}).get("containerName")) not in {None, *names}:
                fail(at, f"podFailurePolicy: there is no container {name}")


def check_train_job(document, where):
    """What the webhooks of the trainer say, and what members need."""
    runtimes = [runtime for runtime in documents if runtime["kind"] == document["spec"]["runtimeRef"]["kind"]]
    named = [runtime for runtime in runtimes if runtime["metadata"]["name"] == document["spec"]["runtimeRef"]["name"]]
    if not named:
        return fail(where, f"there is no runtime {document['spec']['runtimeRef']['name']}")
    jobs = {job["name"]: job for job in job_set(named[0])["replicatedJobs"]}
    containers = {name: {container["name"] for container in job["template"]["spec"]["template"]["spec"]["containers"]} for name, job in jobs.items()}
    trained = [name for name, job in jobs.items() if ANCESTOR in job["template"].get("metadata", {}).get("labels", {})]
    if len(trained) != 1 or NODE not in containers[trained[0]] or jobs[trained[0]].get("replicas", 1) != 1:
        fail(where, f"one job must have the label {ANCESTOR}, a container {NODE} and one replica, not {trained}")
    for patch in document["spec"].get("runtimePatches", []):
        for job in patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]:
            for container in job["template"]["spec"]["template"]["spec"]["containers"]:
                if container["name"] not in containers.get(job["name"], set()) - {NODE}:
                    fail(where, f"{job['name']} has no container {container['name']} whose variables may be patched")
    controller = f"{document['metadata']['name']}-controller-0-0.{document['metadata']['name']}:"
    for settings in documents:
        if settings["kind"] == "ConfigMap" and not settings["data"]["LIBRA_CONTROLLER"].startswith(controller):
            fail(where, f"LIBRA_CONTROLLER is {settings['data']['LIBRA_CONTROLLER']}, and the controller {controller}")


def check_ray(document, where):
    for path in unknown(document["spec"], RAY[document["kind"]]):
        fail(where, f"{path} is no field of a {document['kind']} that is known here")
    cluster = document["spec"] if document["kind"] == "RayCluster" else document["spec"].get("rayClusterSpec")
    ports = {}
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]] if cluster else []:
        name = group.get("groupName", "head")
        metadata = {"name": name}
        validate({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": group["template"]["spec"]}, f"{where}/{name}")
        if not group["template"]["spec"].get("hostNetwork"):
            continue
        # Two pods on one host may not take the ports of each other.
        for key, value in group["rayStartParams"].items():
            if "port" in key and ports.setdefault(value, f"{name} {key}") != f"{name} {key}":
                fail(f"{where}/{name}", f"{key}: {ports[value]} has port {value}, too")
        if "min-worker-port" not in group["rayStartParams"] or "node-manager-port" not in group["rayStartParams"]:
            fail(f"{where}/{name}", "on the network of the host it needs ports of its own")


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
            if "configMapRef" in source and source["configMapRef"]["name"] not in NAMES["ConfigMap"]:
                fail(where, f"there is no ConfigMap {source['configMapRef']['name']}")
    if pod["serviceAccountName"] not in NAMES["ServiceAccount"]:
        fail(where, f"there is no ServiceAccount {pod['serviceAccountName']}")
    for volume in pod.get("volumes", []):
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim not in {None, *NAMES.get("PersistentVolumeClaim", ())}:
            fail(where, f"there is no PersistentVolumeClaim {claim}")


def members(role):
    """Members of a role that the manifests start."""
    count = 0
    for document in documents:
        if document["kind"] == "StatefulSet" and document["metadata"]["name"] == f"libra-{role}":
            count += document["spec"]["replicas"]
        for job in job_set(document).get("replicatedJobs", []):
            if job["name"] == role:
                count += job.get("replicas", 1) * job["template"]["spec"].get("parallelism", 1)
    nodes = [document["spec"]["trainer"]["numNodes"] for document in documents if document["kind"] == "TrainJob"]
    return nodes[0] if nodes and role == "worker" else count


def check_numbers(settings, where):
    for role, variable in [("server", "LIBRA_SERVERS"), ("switch", "LIBRA_SWITCHES"), ("worker", "LIBRA_WORKERS")]:
        least, _, most = settings[variable].partition("..")
        if not int(least) <= members(role) <= int(most or least):
            fail(where, f"{variable} is {settings[variable]}, and {members(role)} are started")


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
    if kind in MODELS:
        check_model(document, where)
        check_jobs(document, where)
    elif kind in RAY:
        check_ray(document, where)
    elif kind == "PodMonitor":
        for path in unknown(document, POD_MONITOR):
            fail(where, f"{path} is no field of a PodMonitor")
    else:
        validate(document, where)
    if kind == "StatefulSet":
        check_pod(document["spec"]["template"]["spec"], where)
    if kind == "TrainJob":
        check_train_job(document, where)
    if kind == "ConfigMap":
        check_numbers(document["data"], where)

if errors:
    sys.exit("\n".join(errors))
print(f"{len(documents)} resources")
