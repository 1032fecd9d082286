/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package podtest

// Response is what becomes of a pod that asks with each effect and is not partitioned: "silence" and "warning" admit it
// as an ordinary pod, and a number is the HTTP status that refuses it.
type Response struct{ Soft, Hard string }

// Responses is the table of the design's section 5, by reason. It is written out and asks nothing of the core, so that
// a change of the core's own table shows.
var Responses = map[string]Response{
	"guaranteed":               {"warning", "403"},
	"qos_change":               {"warning", "403"},
	"pod_level_cpu":            {"warning", "403"},
	"cpu_out_of_range":         {"warning", "403"},
	"namespace_constrains_cpu": {"warning", "403"},
	"hugepages_need_cpu":       {"warning", "403"},
	"annotations_too_large":    {"warning", "403"},
	"decided_against":          {"silence", "403"},
	"type_inactive":            {"warning", "403"},
	"node_does_not_count":      {"warning", "403"},
	"namespace_not_annotated":  {"warning", "403"},
	"namespace_other_types":    {"403", "403"},
	"invalid_target":           {"422", "422"},
	"changed_later":            {"403", "403"},
	"cores_without_target":     {"warning", "warning"},
}

// Refuses reports whether a pod that asks with the effect, hard or soft, is refused.
func (r Response) Refuses(hard bool) bool {
	gets := r.Soft
	if hard {
		gets = r.Hard
	}
	return gets == "403" || gets == "422"
}
