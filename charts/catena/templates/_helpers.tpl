{{- /* Labels of all objects. */ -}}
{{- define "catena.labels" -}}
app.kubernetes.io/name: catena
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Labels by which Services, budgets and policies select the Pods of a component. */ -}}
{{- define "catena.selector" -}}
app.kubernetes.io/name: catena
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- /* The Secret with the certificate of the resolve API. */ -}}
{{- define "catena.servingSecret" -}}
{{- $certificates := .Values.certificates }}
{{- dict "self" "catena-resolve-tls" "cert-manager" "catena-resolve-cert" "secret" $certificates.secretName | dig $certificates.mode "" }}
{{- end }}

{{- /* The image in values, whose name errors have. */ -}}
{{- define "catena.image" -}}
{{- if and .image.tag .image.digest }}
{{- fail (printf "%s.tag and %s.digest are both set: one of them must be empty" .name .name) }}
{{- end }}
{{- .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- /*
An object of config as JSON, in the namespace of the release. Text is replaced only in JSON, in which a name like 123 stays a string.
*/ -}}
{{- define "catena.object" -}}
{{- fromYaml .text | toJson | replace "catena-system" .root.Release.Namespace }}
{{- end }}

{{- /*
The objects in files that are copies of those in config, in the namespace of the release. The argument has the root context, a pattern of
files, and, if they are needed, labels and annotations to add and names of labels to leave out.
*/ -}}
{{- define "catena.files" }}
{{- $root := .root }}
{{- $added := .labels | default dict }}
{{- $annotations := .annotations }}
{{- $omitLabels := .omitLabels }}
{{- range $path, $_ := $root.Files.Glob .files }}
{{- range regexSplit "(?m)^---$" ($root.Files.Get $path) -1 }}
{{- $object := include "catena.object" (dict "root" $root "text" .) | fromJson }}
{{- if $object }}
{{- $labels := merge (include "catena.labels" $root | fromYaml) ($object.metadata.labels | default dict) $added }}
{{- range $omitLabels }}
{{- $_ := unset $labels . }}
{{- end }}
{{- $_ := set $object.metadata "labels" $labels }}
{{- with $annotations }}
{{- $_ := set $object.metadata "annotations" (merge (dict) . ($object.metadata.annotations | default dict)) }}
{{- end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Where the Pods of a component should run, unless values say otherwise. */ -}}
{{- define "catena.scheduling" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- if .values.affinity }}
{{- toYaml .values.affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "catena.selector" .component | nindent 12 }}
{{- end }}
topologySpreadConstraints:
{{- if .values.topologySpreadConstraints }}
{{- toYaml .values.topologySpreadConstraints | nindent 2 }}
{{- else }}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "catena.selector" .component | nindent 6 }}
{{- end }}
{{- end }}

{{- /* The security contexts, which Pod Security's level restricted asks for. */ -}}
{{- define "catena.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}
{{- define "catena.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "catena.probes" -}}
livenessProbe:
  httpGet:
    path: /healthz
    port: health
  periodSeconds: 20
  timeoutSeconds: 5
readinessProbe:
  httpGet:
    path: /readyz
    port: health
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/*
The memory limit of a container, which the programs keep below. Without one, or with 0, the variable would have the memory of the node.
*/}}
{{- define "catena.memoryLimit" }}
{{- if dig "limits" "memory" "" (.resources | default dict) | toString | regexMatch "^[+0.]*[1-9]" }}
- name: MEMORY_LIMIT
  valueFrom:
    resourceFieldRef:
      containerName: {{ .container }}
      resource: limits.memory
{{- end }}
{{- end }}
