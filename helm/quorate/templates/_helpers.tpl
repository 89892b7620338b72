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

{{/* Selects the pods of the nodes, and not those of the import and the tests. */}}
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

{{- define "quorate.clusterSecretEnv" -}}
- name: QUORATE_CLUSTER_SECRET
  valueFrom:
    secretKeyRef:
      name: {{ include "quorate.clusterSecretName" . }}
      key: {{ .Values.clusterSecret.key }}
{{- end }}

{{/* A value as the text of a setting. Helm reads whole numbers as floats: 4194304 would be written 4.194304e+06. */}}
{{- define "quorate.settingText" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{- define "quorate.members" -}}
{{- range $id := untilStep 1 (add1 .Values.replicaCount | int) 1 -}}
{{- if gt $id 1 }},{{ end }}{{ printf "%d=%s-%d.%s:7672" $id (include "quorate.fullname" $) $id (include "quorate.nodesHost" $) }}
{{- end }}
{{- end }}

{{- define "quorate.config" -}}
{{- $host := ternary (printf "[%s]" .Values.listenAddress) .Values.listenAddress (contains ":" .Values.listenAddress) -}}
data_dir = "/var/lib/quorate/data"
amqp_listen = "{{ $host }}:5672"
rpc_listen = "{{ $host }}:7672"
http_listen = "{{ $host }}:15672"
{{- range $name, $value := .Values.config }}
{{ $name }} = {{ include "quorate.settingText" $value | toJson }}
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
  env:
    {{- include "quorate.clusterSecretEnv" . | nindent 4 }}
  {{- include "quorate.smallResources" . | nindent 2 }}
{{- end }}

{{/* Of a command that runs beside the nodes. */}}
{{- define "quorate.smallResources" -}}
resources:
  requests: {cpu: 100m, memory: 64Mi}
  limits: {memory: 128Mi}
{{- end }}
