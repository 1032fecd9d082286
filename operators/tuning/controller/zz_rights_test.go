// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/operators/internal/companiontest"
	"workload.openshift.io/operators/internal/testenv"
)

// TestEveryRightOfAnOrdinaryClusterIsUsed compares the role of an ordinary cluster with what the tests before made the companion do.
// The other roles are the rules'. go test goes by the names of files, so this one comes last but for them.
func TestEveryRightOfAnOrdinaryClusterIsUsed(t *testing.T) {
	for name, test := range map[string]struct {
		in     *testenv.ControlPlane
		role   string
		user   string
		unused []string
	}{
		// Besides what it has at home everywhere.
		"ordinary": {testenv.Start(t), "tuning-ordinary/cluster/role.yaml", "system:serviceaccount:partition-tuning:partition-controller", []string{
			"create apps/daemonsets",
			"list /nodes", "list tuned.openshift.io/profiles",
			"list /pods",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(companiontest.Base(test.role))
			if err != nil {
				t.Fatal(err)
			}
			granted := map[string]bool{}
			for document := range strings.SplitSeq(string(data), "\n---\n") {
				role := &rbacv1.Role{}
				if err := yaml.Unmarshal([]byte(document), role); err != nil {
					t.Fatal(err)
				}
				for _, rule := range role.Rules {
					for _, group := range rule.APIGroups {
						for _, resource := range rule.Resources {
							for _, verb := range rule.Verbs {
								if verb == "*" || resource == "*" || group == "*" {
									t.Errorf("%s has a wildcard", role.Name)
								}
								granted[verb+" "+group+"/"+resource] = true
							}
						}
					}
				}
			}
			used := map[string]bool{}
			data, err = os.ReadFile(test.in.AuditLog())
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(data)) {
				var event struct {
					Verb           string
					User           struct{ Username string }
					ObjectRef      struct{ APIGroup, Resource, Subresource string }
					ResponseStatus struct{ Code int }
				}
				if err := json.Unmarshal([]byte(line), &event); err != nil {
					t.Fatal(err)
				}
				if event.User.Username != test.user || event.ObjectRef.Resource == "" {
					continue
				}
				right := event.Verb + " " + event.ObjectRef.APIGroup + "/" + event.ObjectRef.Resource
				if event.ObjectRef.Subresource != "" {
					right += "/" + event.ObjectRef.Subresource
				}
				if event.ResponseStatus.Code == 403 {
					t.Errorf("%s was refused", right)
				}
				used[right] = true
			}
			if len(used) == 0 {
				t.Skip("no test ran before")
			}
			for _, right := range slices.Sorted(maps.Keys(granted)) {
				if expected := slices.Contains(test.unused, right); expected == used[right] {
					t.Errorf("%s is used: %t", right, used[right])
				}
			}
		})
	}
}
