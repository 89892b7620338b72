{{/* At most 50 characters, so that 63 suffice for the labels and names that are made of it. */}}
{{- define "quorate.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{/* Labels that never change: selectors and volume claims are immutable. */}}
{{- define "quorate.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Selects the pods of the nodes, and not those of the tests. */}}
{{- define "quorate.nodeLabels" -}}
{{ include "quorate.selectorLabels" . }}
app.kubernetes.io/component: node
{{- end }}

{{/* metadata of an object: dict "of" CONTEXT, "name" NAME (default: fullname), "component", "labels", "annotations". */}}
{{- define "quorate.metadata" -}}
{{- $of := .of -}}
name: {{ default (include "quorate.fullname" $of) .name }}
namespace: {{ $of.Release.Namespace }}
labels:
  helm.sh/chart: {{ printf "%s-%s" $of.Chart.Name $of.Chart.Version | replace "+" "_" }}
  app.kubernetes.io/version: {{ $of.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ $of.Release.Service }}
  {{- include "quorate.selectorLabels" $of | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with merge (dict) (.labels | default dict) $of.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) $of.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "quorate.image" -}}
{{- with .Values.image -}}
{{ with .registry }}{{ . }}/{{ end }}{{ .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "quorate.serviceAccountName" -}}
{{- default (ternary (include "quorate.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end }}

{{/* Name of the headless Service: all nodes, ready or not. */}}
{{- define "quorate.nodesHost" -}}
{{ include "quorate.fullname" . }}-nodes.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* Name of the Service for clients. */}}
{{- define "quorate.clientsHost" -}}
{{ include "quorate.fullname" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "quorate.clusterSecretName" -}}
{{- default (printf "%s-cluster" (include "quorate.fullname" .)) .Values.clusterSecret.existingSecret -}}
{{- end }}

{{- define "quorate.definitionsName" -}}
{{- default (printf "%s-definitions" (include "quorate.fullname" .)) .Values.definitions.existingSecret -}}
{{- end }}

{{- define "quorate.tlsName" -}}
{{- default (printf "%s-tls" (include "quorate.fullname" .)) .Values.tls.existingSecret -}}
{{- end }}

{{/* Names in the certificate of all nodes, as a list in JSON: of the nodes, of the Services, and of a pod for itself. */}}
{{- define "quorate.tlsNames" -}}
{{- $name := include "quorate.fullname" . -}}
{{- $nodes := include "quorate.nodesHost" . -}}
{{- $names := list "localhost" $nodes (printf "*.%s" $nodes) -}}
{{- range $service := list $name (printf "%s-management" $name) -}}
{{- $in := printf "%s.%s" $service $.Release.Namespace -}}
{{- $names = concat $names (list $service $in (printf "%s.svc" $in) (printf "%s.svc.%s" $in $.Values.clusterDomain)) -}}
{{- end -}}
{{- concat $names .Values.tls.certManager.dnsNames | uniq | toJson -}}
{{- end }}

{{/* Name of the port that serves HTTP: that of HTTPS, if there are no ports without TLS. */}}
{{- define "quorate.httpPort" -}}
{{- ternary "https" "http" .Values.tls.only -}}
{{- end }}

{{/* Where the nodes find the files of the Secrets. */}}
{{- define "quorate.secretsPath" -}}
/run/secrets/quorate
{{- end }}

{{/* Password of the generated user, drawn once for each rendering: it is in the Secret, and in the checksum of the pods.
     `.Release` is the same map in all templates, and is kept nowhere. */}}
{{- define "quorate.password" -}}
{{- if .Values.definitions.credentialsSecret -}}
{{- include "quorate.credential" (dict "of" . "key" "password") -}}
{{- else -}}
{{- if not (hasKey .Release "quoratePassword") -}}
{{- $kept := get ((lookup "v1" "Secret" .Release.Namespace (include "quorate.definitionsName" .)).data | default dict) "password" -}}
{{- $_ := set .Release "quoratePassword" (default (randAlphaNum 32) (b64dec $kept)) -}}
{{- end -}}
{{- .Release.quoratePassword -}}
{{- end -}}
{{- end }}

{{/* A text of the Secret with the first user: dict "of" CONTEXT, "key" KEY. */}}
{{- define "quorate.credential" -}}
{{- $name := .of.Values.definitions.credentialsSecret -}}
{{- $found := get ((lookup "v1" "Secret" .of.Release.Namespace $name).data | default dict) .key -}}
{{- if not $found -}}
{{- fail (printf "definitions.credentialsSecret: the namespace has no Secret %s with a %s (`helm template` does not look at the cluster: use definitions.existingSecret with it)" $name .key) -}}
{{- end -}}
{{- b64dec $found -}}
{{- end }}

{{/* Name of the first user. */}}
{{- define "quorate.user" -}}
{{- if .Values.definitions.credentialsSecret -}}
{{- include "quorate.credential" (dict "of" . "key" "username") -}}
{{- else -}}
{{- .Values.definitions.user -}}
{{- end -}}
{{- end }}

{{/* The generated definitions. RabbitMQ's hash is base64 of 4 bytes of salt and SHA-256 of salt and password. Templates
     have no bytes, so the base64 is made of the hexadecimal digits, three digits to two characters. The password is
     random, so the salt may follow from it, and an upgrade makes the same hash again. */}}
{{- define "quorate.definitions" -}}
{{- $user := include "quorate.user" . -}}
{{- $password := include "quorate.password" . -}}
{{- $salt := sha256sum $password | trunc 4 -}}
{{- $digits := printf "%x%s" $salt (sha256sum (print $salt $password)) -}}
{{- $alphabet := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" -}}
{{- $hash := "" -}}
{{- range $at := untilStep 0 (len $digits) 3 -}}
{{- $bits := substr $at (int (add $at 3)) $digits | printf "0x%s" | int -}}
{{- range list (div $bits 64) (mod $bits 64) -}}
{{- $hash = print $hash (substr (int .) (int (add1 .)) $alphabet) -}}
{{- end -}}
{{- end -}}
{{- $users := list (dict "name" $user "password_hash" $hash "hashing_algorithm" "rabbit_password_hashing_sha256" "tags" (list "administrator")) -}}
{{- $permissions := list (dict "user" $user "vhost" "/" "configure" ".*" "write" ".*" "read" ".*") -}}
{{- $all := dict "users" $users "permissions" $permissions -}}
{{- range $kind, $objects := .Values.definitions.extra -}}
{{- $_ := set $all $kind (concat (get $all $kind | default list) $objects) -}}
{{- end -}}
{{- $all | toJson -}}
{{- end }}

{{/* Changes with the definitions, so that the nodes are restarted and import them. */}}
{{- define "quorate.definitionsChecksum" -}}
{{- if .Values.definitions.existingSecret -}}
{{- get ((lookup "v1" "Secret" .Release.Namespace .Values.definitions.existingSecret).data | default dict) "definitions.json" | sha256sum -}}
{{- else -}}
{{- include "quorate.definitions" . | sha256sum -}}
{{- end -}}
{{- end }}

{{/* A value as the text of a setting. Helm reads whole numbers as floats: 4194304 would be written 4.194304e+06. */}}
{{- define "quorate.settingText" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{/* Number of nodes that the release has had, also while it is stopped; 0: it is being installed, or no cluster is looked at. */}}
{{- define "quorate.formerCount" -}}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace (include "quorate.fullname" .) -}}
{{- $formed := dig "annotations" "quorate/nodes" (toString .spec.replicas) .metadata -}}
{{- dig "annotations" "quorate/replicas" $formed .metadata -}}
{{- else -}}
0
{{- end -}}
{{- end }}

{{/* Number of nodes that formed the cluster. It stays as it is, so that more nodes do not restart those that are there. */}}
{{- define "quorate.founders" -}}
{{- $count := .Values.replicaCount -}}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace (include "quorate.fullname" .) -}}
{{- dig "annotations" "quorate/nodes" (toString .spec.replicas) .metadata -}}
{{- else -}}
{{- $count -}}
{{- end -}}
{{- end }}

{{/* The nodes that formed the cluster, and the node itself, which may be one of them: the setting takes it twice, and takes
     at most five nodes. */}}
{{- define "quorate.members" -}}
{{- $most := ternary 4 5 (gt (int .Values.replicaCount) 5) -}}
{{- $host := printf "%s:7672" (include "quorate.nodesHost" .) -}}
{{- range $id := untilStep 1 (include "quorate.founders" . | int | min $most | add1 | int) 1 -}}
{{ printf "%d=%s-%d.%s," $id (include "quorate.fullname" $) $id $host }}
{{- end -}}
{{ printf "$(QUORATE_NODE_ID)=%s-$(QUORATE_NODE_ID).%s" (include "quorate.fullname" .) $host }}
{{- end }}

{{- define "quorate.config" -}}
{{- $host := ternary (printf "[%s]" .Values.listenAddress) .Values.listenAddress (contains ":" .Values.listenAddress) -}}
{{- $plain := ternary (ternary "[::1]" "127.0.0.1" (contains ":" $host)) $host .Values.tls.only -}}
data_dir = "/var/lib/quorate/data"
amqp_listen = "{{ $plain }}:5672"
rpc_listen = "{{ $host }}:7672"
http_listen = "{{ $plain }}:15672"
{{- if .Values.tls.enabled }}
amqp_tls_listen = "{{ $host }}:5671"
http_tls_listen = "{{ $host }}:15671"
tls_client_certificates = "{{ .Values.tls.clientCertificates }}"
{{- end }}
{{- range $name, $value := .Values.config }}
{{ $name }} = {{ include "quorate.settingText" $value | toJson }}
{{- end }}
{{- if .Values.definitions.enabled }}
definitions_file = "{{ include "quorate.secretsPath" . }}/definitions.json"
{{- end }}
{{- if .Values.queueReplicas }}
queue_replicas = {{ int .Values.queueReplicas }}
{{- end }}
{{- if .Values.replaceLostVolumes }}
replace_lost_disk = true
{{- end }}
{{- end }}

{{/* Parts that all pods have in common. */}}
{{- define "quorate.podDefaults" -}}
serviceAccountName: {{ include "quorate.serviceAccountName" . }}
automountServiceAccountToken: false
# Variables such as QUORATE_PORT, which Kubernetes makes for Services, would be taken for settings.
enableServiceLinks: false
{{- range $key := list "imagePullSecrets" "nodeSelector" "tolerations" "priorityClassName" }}
{{- with get $.Values $key }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "quorate.containerDefaults" -}}
image: {{ include "quorate.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
command: [/usr/local/bin/quorate]
{{- end }}

{{/* A container that waits until the nodes serve clients, at most 10 minutes. */}}
{{- define "quorate.awaitContainer" -}}
- name: await-startup
  {{- include "quorate.containerDefaults" . | nindent 2 }}
  args: [ctl, --node, {{ include "quorate.nodesHost" . }}, await_startup, --timeout, "600"]
  {{- include "quorate.ctlAccess" . | nindent 2 }}
  {{- include "quorate.smallResources" . | nindent 2 }}
{{- end }}

{{/* A container that has a node forgotten, and waits until it is no member: dict "of" CONTEXT, "id" ID. It asks the first
     node, which is never one that goes. */}}
{{- define "quorate.forgetContainer" -}}
{{- $of := .of -}}
- name: forget-{{ .id }}
  {{- include "quorate.containerDefaults" $of | nindent 2 }}
  args: [ctl, --node, "{{ include "quorate.fullname" $of }}-1.{{ include "quorate.nodesHost" $of }}", forget_cluster_node, {{ .id | toString | quote }}, --drain, --wait, {{ $of.Values.scaleDown.timeoutSeconds | quote }}]
  {{- include "quorate.ctlAccess" $of | nindent 2 }}
  {{- include "quorate.smallResources" $of | nindent 2 }}
{{- end }}

{{/* A container of the test that publishes or consumes: dict "of" CONTEXT, "name" NAME, "arguments" LIST. */}}
{{- define "quorate.perfContainer" -}}
- name: {{ .name }}
  {{- include "quorate.containerDefaults" .of | nindent 2 }}
  args: {{ prepend .arguments "perf" | toJson }}
  env:
    - name: QUORATE_URI
      valueFrom:
        secretKeyRef:
          name: {{ include "quorate.definitionsName" .of }}
          key: uri
  {{- include "quorate.smallResources" .of | nindent 2 }}
{{- end }}

{{/* What `quorate ctl` needs in a pod beside the nodes: the cluster secret as a variable, and the files of TLS. */}}
{{- define "quorate.ctlAccess" -}}
env:
  - name: QUORATE_CLUSTER_SECRET
    valueFrom:
      secretKeyRef:
        name: {{ include "quorate.clusterSecretName" . }}
        key: {{ .Values.clusterSecret.key }}
  {{- include "quorate.tlsEnv" . | nindent 2 }}
{{- if .Values.tls.enabled }}
volumeMounts:
  - name: secrets
    mountPath: {{ include "quorate.secretsPath" . }}
    readOnly: true
{{- end }}
{{- end }}

{{/* The volumes of such a pod. */}}
{{- define "quorate.ctlVolumes" -}}
{{- if .Values.tls.enabled }}
volumes:
  - name: secrets
    projected:
      defaultMode: 0440
      sources:
        {{- include "quorate.tlsFiles" . | nindent 8 }}
{{- end }}
{{- end }}

{{/* The files of TLS in a projected volume. */}}
{{- define "quorate.tlsFiles" -}}
- secret:
    name: {{ include "quorate.tlsName" . }}
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}, {key: ca.crt, path: ca.crt}]
{{- end }}

{{/* The settings of TLS as variables, which both `quorate server` and `quorate ctl` read. */}}
{{- define "quorate.tlsEnv" -}}
{{- if .Values.tls.enabled }}
{{- $path := include "quorate.secretsPath" . }}
- {name: QUORATE_TLS_CERTIFICATE_FILE, value: {{ $path }}/tls.crt}
- {name: QUORATE_TLS_KEY_FILE, value: {{ $path }}/tls.key}
- {name: QUORATE_TLS_CA_FILE, value: {{ $path }}/ca.crt}
{{- if .Values.tls.betweenNodes }}
- {name: QUORATE_RPC_TLS, value: "true"}
{{- end }}
{{- end }}
{{- end }}

{{/* Of a command that runs beside the nodes. */}}
{{- define "quorate.smallResources" -}}
resources:
  requests: {cpu: 100m, memory: 64Mi}
  limits: {memory: 128Mi}
{{- end }}
