{{/* digests are those of the images by their names. They are here once the chart is packed. */}}
{{- define "digests" -}}
{}
{{- end }}
