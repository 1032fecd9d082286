{{/* image returns the reference of an image: list CONTEXT NAME. */}}
{{- define "image" -}}
{{- $values := (index . 0).Values.images }}{{ $name := index . 1 }}
{{- with get $values $name }}{{ . }}
{{- else }}
{{- $digest := get (include "digests" . | fromJson) $name | required (printf "images.%s: this chart was not packed by a release, so it names no image; set it" $name) }}
{{- printf "%s/%s@%s" (required "images.registry: say where the images are, such as registry.example.com/partitioning" $values.registry | trimSuffix "/") $name $digest }}
{{- end }}
{{- end }}

{{/* configuration returns a companion's configuration file: list CONTEXT VALUES COMPANION IMAGES [CERTIFICATES]. */}}
{{- define "configuration" -}}
{{- $context := index . 0 }}{{ $name := index . 1 }}
{{- $config := deepCopy (get $context.Values $name).config }}
{{- range $setting, $image := index . 3 }}
{{- if not (dig "settings" $setting "" $config) }}
{{- $_ := set $config "settings" (merge (dict $setting (include "image" (list $context $image))) (default dict $config.settings)) }}
{{- end }}
{{- end }}
{{- if gt (len .) 4 }}{{ with index . 4 }}{{ $_ := set $config "certificates" (fromJson .) }}{{ end }}{{ end }}
{{- $_ := set $config "apiVersion" "config.workload.openshift.io/v1alpha1" }}
{{- $_ := set $config "kind" "ControllerConfiguration" }}
{{- $_ := set $config "controller" (index . 2) }}
{{- toYaml $config }}
{{- end }}
