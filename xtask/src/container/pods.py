"""Pods of manifests as `kubectl kustomize` prints them, for `podman kube play`: with the names, numbers and variables that controllers of
a cluster would give them. Arguments are variables of all, as NAME=VALUE; one without a value is taken away.
"""

import copy
import itertools
import sys

import yaml

IMAGE = "localhost/libra"
# Podman publishes each port of a pod.
PORTS = itertools.count(19_700)


def templates(document):
    """Templates of pods, with the role, the number of pods, and the claims of each."""
    if document["kind"] == "StatefulSet":
        spec = document["spec"]
        claims = [claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]]
        yield document["metadata"]["name"].removeprefix("libra-"), spec["replicas"], claims, spec["template"]["spec"]
    for job in document["spec"].get("replicatedJobs", []) if document["kind"] == "JobSet" else []:
        spec = job["template"]["spec"]
        yield job["name"], job.get("replicas", 1) * spec.get("parallelism", 1), [], spec["template"]["spec"]


def pod(role, number, claims, template):
    name, spec = f"libra-{role}-{number}", copy.deepcopy(template)
    volumes = spec.get("volumes", [])
    # A cluster gives a directory of a pod to its group (fsGroup), podman to root: it is a claim here.
    empty = [volume["name"] for volume in volumes if "emptyDir" in volume]
    spec["volumes"] = [volume for volume in volumes if "emptyDir" not in volume] + [
        {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}"}} for claim in [*claims, *empty]
    ]
    spec["restartPolicy"] = "Never"
    for container in spec["containers"]:
        container["image"], container["imagePullPolicy"] = IMAGE, "Never"
        for port in container["ports"]:
            port["hostPort"] = next(PORTS)
        for variable in container.get("env", []):
            # Podman has no variables in the values of others.
            if "value" in variable:
                variable["value"] = variable["value"].replace("$(NUMBER)", str(number))
    annotations = {"jobset.sigs.k8s.io/job-index": str(number)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


played = []
for document in yaml.safe_load_all(sys.stdin):
    if document["kind"] == "ConfigMap":
        for name, equals, value in (argument.partition("=") for argument in sys.argv[1:]):
            document["data"].pop(name, None)
            document["data"].update({name: value} if equals else {})
        played.append(document)
    for role, count, claims, template in templates(document):
        played += [pod(role, number, claims, template) for number in range(count)]
yaml.safe_dump_all(played, sys.stdout)
