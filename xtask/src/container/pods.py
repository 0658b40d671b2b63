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
    set_of_jobs = document["spec"] if document["kind"] == "JobSet" else {}
    if document["kind"] == "TrainingRuntime":
        set_of_jobs = document["spec"]["template"]["spec"]
    for job in set_of_jobs.get("replicatedJobs", []):
        spec = job["template"]["spec"]
        count = job.get("replicas", 1) * spec.get("parallelism", 1)
        # All of them are on one host here, whose ports one pod of each role has.
        is_on_host = spec["template"]["spec"].get("hostNetwork")
        yield job["name"], 1 if is_on_host else count, [], spec["template"]["spec"]


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
        # The trainer wants another name for that of workers.
        container["name"] = "libra"
        container["image"], container["imagePullPolicy"] = IMAGE, "Never"
        # Those on the network of the host have its ports, which podman takes no list of.
        if spec.get("hostNetwork"):
            del container["ports"]
        for port in container.get("ports", []):
            port["hostPort"] = next(PORTS)
        for variable in container.get("env", []):
            # Podman has no variables in the values of others.
            if "value" in variable:
                variable["value"] = variable["value"].replace("$(NUMBER)", str(number))
    annotations = {"jobset.sigs.k8s.io/job-index": str(number)}
    # Podman does not read `seccompProfile`, but what it was before that.
    if spec["securityContext"].get("seccompProfile") == {"type": "Unconfined"}:
        annotations["seccomp.security.alpha.kubernetes.io/pod"] = "unconfined"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}


def name_once(settings, pods):
    """Podman lets a ConfigMap go before `env`, a cluster the other way round: what both have is in `env` alone."""
    containers = [container for pod in pods for container in pod["spec"]["containers"]]
    names = [{variable["name"] for variable in container.get("env", [])} for container in containers]
    for name in set().union(*names) & settings.keys():
        value = settings.pop(name)
        for container, own in zip(containers, names):
            if name not in own:
                container["env"].append({"name": name, "value": value})


maps, pods = [], []
for document in yaml.safe_load_all(sys.stdin):
    if document["kind"] == "ConfigMap":
        for name, equals, value in (argument.partition("=") for argument in sys.argv[1:]):
            document["data"].pop(name, None)
            document["data"].update({name: value} if equals else {})
        maps.append(document)
    for role, count, claims, template in templates(document):
        pods += [pod(role, number, claims, template) for number in range(count)]
for document in maps:
    name_once(document["data"], pods)
yaml.safe_dump_all(maps + pods, sys.stdout)
