#!/usr/bin/env python3
"""Makes the volumes of the cluster: provisioner.py FOLDER PKI, in the network of the API server.

Each claim of a StorageClass whose provisioner is quorate/folder gets a volume of type `local`, a folder below FOLDER.
It is empty and belongs to root, as a new disk of a cloud does: a pod that runs as another user needs fsGroup. Every node
sees the folder, so a pod may come back on another node. Sizes are not enforced. With the reclaim policy Delete the
volume and its files go when the claim is deleted. PKI is the folder with the certificates of the cluster."""
import http.client
import json
import os
import shutil
import ssl
import sys
import time

FOLDER, PKI = sys.argv[1:]
PROVISIONER = "quorate/folder"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
# The scheduler sets it on a claim when it has chosen a node for the first pod that uses the claim.
SELECTED_NODE = "volume.kubernetes.io/selected-node"
SECONDS_BETWEEN_STEPS = 0.5
ALREADY_EXISTS = 409

tls = ssl.create_default_context(cafile=f"{PKI}/ca.crt")
tls.load_cert_chain(f"{PKI}/admin.crt", f"{PKI}/admin.key")


def call(method, path, document=None):
    """Asks the API server. What exists already was made by an earlier step, whose result had not been seen yet."""
    server = http.client.HTTPSConnection("127.0.0.1", 6443, context=tls, timeout=10)
    try:
        body = json.dumps(document) if document else None
        server.request(method, path, body, {"Content-Type": "application/json"})
        answer = server.getresponse()
        text = answer.read()
    finally:
        server.close()
    if answer.status >= 300 and answer.status != ALREADY_EXISTS:
        raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]}")
    return json.loads(text)


def volume(claim, storage_class):
    """The volume for a claim, whose folder is made first."""
    about, wanted = claim["metadata"], claim["spec"]
    path = os.path.join(FOLDER, f"{about['namespace']}-{about['name']}-{about['uid'][:8]}")
    os.makedirs(path, exist_ok=True)
    # A volume of type local has to say on which nodes it is: on all.
    any_node = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{about['uid']}", "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": wanted["resources"]["requests"]["storage"]},
            "accessModes": wanted["accessModes"],
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "storageClassName": wanted["storageClassName"],
            "volumeMode": "Filesystem",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "name": about["name"],
                "namespace": about["namespace"],
                "uid": about["uid"],
            },
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [any_node]}]}},
        },
    }


def is_due(claim, storage_class):
    """Whether a claim that has no volume yet is to get one now."""
    if claim["status"].get("phase") != "Pending" or claim["metadata"].get("deletionTimestamp"):
        return False
    waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    return not waits or SELECTED_NODE in claim["metadata"].get("annotations", {})


def make_volumes():
    listed = call("GET", "/apis/storage.k8s.io/v1/storageclasses")["items"]
    classes = {it["metadata"]["name"]: it for it in listed if it["provisioner"] == PROVISIONER}
    for claim in call("GET", "/api/v1/persistentvolumeclaims")["items"]:
        storage_class = classes.get(claim["spec"].get("storageClassName"))
        if storage_class and is_due(claim, storage_class):
            call("POST", "/api/v1/persistentvolumes", volume(claim, storage_class))


def is_to_be_deleted(found):
    """Whether a volume is one of these, and its claim is gone."""
    return (
        found["metadata"].get("annotations", {}).get(PROVISIONED_BY) == PROVISIONER
        and found["status"].get("phase") in ("Released", "Failed")
        and found["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    )


def delete_volumes():
    for found in call("GET", "/api/v1/persistentvolumes")["items"]:
        if not is_to_be_deleted(found):
            continue
        shutil.rmtree(found["spec"]["local"]["path"], ignore_errors=True)
        if not found["metadata"].get("deletionTimestamp"):
            call("DELETE", f"/api/v1/persistentvolumes/{found['metadata']['name']}")


while True:
    try:
        make_volumes()
        delete_volumes()
    # Whatever it was, the next step looks at everything again.
    except Exception as failed:
        print(repr(failed), flush=True)
    time.sleep(SECONDS_BETWEEN_STEPS)
