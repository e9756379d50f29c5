{{- define "rota.selector" -}}
app.kubernetes.io/name: rota
app.kubernetes.io/component: daemon
{{- end }}

{{- define "rota.labels" -}}
{{ include "rota.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Name of cluster-wide objects: several namespaces may have a release. */}}
{{- define "rota.wide" -}}
rota-{{ .Release.Namespace }}
{{- end }}

{{- define "rota.config" -}}
{{- range $name, $value := .Values.settings }}
{{ $name }} = {{ $value | toJson }}
{{- end }}
{{- end }}
