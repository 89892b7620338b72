#!/usr/bin/env python3
"""api_stub.py OBJECTS COMMAND...: runs a helm command against an API server that has just these objects, a file with a
JSON list. It answers reads only: enough for `lookup` in templates, with --dry-run=server."""
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

GROUPS = {"/api/v1": ["Secret", "ConfigMap", "Service", "ServiceAccount", "Pod", "Namespace"],
          "/apis/apps/v1": ["StatefulSet"], "/apis/batch/v1": ["Job"], "/apis/policy/v1": ["PodDisruptionBudget"],
          "/apis/networking.k8s.io/v1": ["NetworkPolicy"]}


def plural(kind):
    return kind.lower()[:-1] + "ies" if kind.endswith("y") else kind.lower() + "s"


def version(group):
    return group.split("/", 2)[2]


def answers(objects):
    found = {"/version": {"major": "1", "minor": "31", "gitVersion": "v1.31.0"},
             "/api": {"kind": "APIVersions", "versions": ["v1"]},
             "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [
                 {"name": version(group).split("/")[0], "versions": [{"groupVersion": version(group), "version": "v1"}],
                  "preferredVersion": {"groupVersion": version(group), "version": "v1"}}
                 for group in GROUPS if group != "/api/v1"]}}
    for group, kinds in GROUPS.items():
        found[group] = {"kind": "APIResourceList", "groupVersion": version(group), "resources": [
            {"name": plural(kind), "kind": kind, "namespaced": kind != "Namespace", "verbs": ["get", "list"]}
            for kind in kinds]}
    for item in objects:
        group = ("/api/" if item["apiVersion"] == "v1" else "/apis/") + item["apiVersion"]
        meta = item["metadata"]
        found[f"{group}/namespaces/{meta['namespace']}/{plural(item['kind'])}/{meta['name']}"] = item
    return found


class Handler(http.server.BaseHTTPRequestHandler):
    known = {}

    def do_GET(self):
        path, _, query = self.path.partition("?")
        body = self.known.get(path)
        if body is None and "labelSelector" in query:
            body = {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": []}
        code = 200 if body else 404
        body = body or {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_):
        pass


def main():
    with open(sys.argv[1]) as file:
        Handler.known = answers(json.load(file))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as config:
        json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "stub",
                   "clusters": [{"name": "stub", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                   "contexts": [{"name": "stub", "context": {"cluster": "stub", "user": ""}}]}, config)
        config.flush()
        sys.exit(subprocess.run(sys.argv[2:], env={**os.environ, "KUBECONFIG": config.name}).returncode)


main()
