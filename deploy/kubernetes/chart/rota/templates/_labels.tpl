{{- define "rota.selector" -}}
app.kubernetes.io/name: rota
app.kubernetes.io/component: daemon
{{- end }}

{{- define "rota.labels" -}}
{{ include "rota.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Of a cluster's objects: another namespace may have a release, too. */}}
{{- define "rota.wide" -}}
rota-{{ .Release.Namespace }}
{{- end }}

{{- define "rota.config" -}}
{{- range $name, $value := .Values.settings }}
{{ $name }} = {{ $value | toJson }}
{{- end }}
{{- end }}
