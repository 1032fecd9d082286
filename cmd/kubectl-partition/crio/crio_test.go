// SPDX-License-Identifier: Apache-2.0

package crio

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func TestWhatBecomesOfAnAnnotation(t *testing.T) {
	whole := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}
	part := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m"), v1.ResourceMemory: resource.MustParse("1Gi")}
	for name, test := range map[string]struct {
		key, value  string
		limits      v1.ResourceList
		class       *string
		partitioned bool
		runtime     string
		idle        bool
		want        string
	}{
		"of an application with exclusive CPUs": {"irq-load-balancing.crio.io", "disable", whole, ptr.To("performance-a"), false, "", false, "keeps interrupts off"},
		"of its one container":                  {"cpu-load-balancing.crio.io/c", "disable", whole, ptr.To("performance-a"), false, "cri-o://1.37.0", false, "load balancing"},
		"shared CPUs of its container":          {"cpu-shared.crio.io/c", "enable", whole, ptr.To("performance-a"), false, "", false, "adds the shared CPUs"},
		"shared CPUs of none":                   {"cpu-shared.crio.io", "enable", whole, ptr.To("performance-a"), false, "", true, "it must name a container"},
		"of a container that the pod has not":   {"cpu-shared.crio.io/d", "enable", whole, ptr.To("performance-a"), false, "", true, "the pod has no container d"},
		"of a partitioned pod":                  {"cpu-quota.crio.io", "disable", part, ptr.To("performance-a"), true, "", true, "a partitioned pod is none"},
		"of a pod without whole CPUs":           {"cpu-quota.crio.io", "disable", part, ptr.To("performance-a"), false, "", true, "whole CPUs"},
		"of a pod without limits":               {"cpu-quota.crio.io", "disable", nil, ptr.To("performance-a"), false, "", true, "whole CPUs"},
		"of a pod without a runtime class":      {"cpu-quota.crio.io", "disable", whole, nil, false, "", true, "runtimeClassName"},
		"of a node with another runtime":        {"cpu-quota.crio.io", "disable", whole, ptr.To("performance-a"), false, "containerd://2.4.2", true, "the runtime of the node is containerd://2.4.2"},
		"with a value that means nothing":       {"irq-load-balancing.crio.io", "off", whole, ptr.To("performance-a"), false, "", true, "its value must be disable or true or housekeeping"},
		"of GOMAXPROCS, on a partitioned pod":   {"skip-gomaxprocs.crio.io", "true", part, nil, true, "", true, "never sets GOMAXPROCS in partitioned pods"},
		"of GOMAXPROCS, on an ordinary pod":     {"skip-gomaxprocs.crio.io", "true", part, nil, false, "", false, ""},
		"another of CRI-O's":                    {"umask.crio.io", "022", whole, nil, false, "", false, ""},
		"one of somebody else":                  {"cpu-quota.example.com", "disable", whole, nil, false, "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{RuntimeClassName: test.class, Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Limits: test.limits}}}}}
			pod.Annotations = map[string]string{test.key: test.value}
			found := Annotations(pod, test.partitioned, test.runtime)
			if test.want == "" {
				if len(found) > 0 {
					t.Errorf("got %v, want nothing", found)
				}
				return
			}
			if len(found) != 1 || found[0].Key != test.key || found[0].Idle != test.idle || !strings.Contains(found[0].Text, test.want) {
				t.Errorf("got %v, want %q, idle: %t", found, test.want, test.idle)
			}
		})
	}
}
