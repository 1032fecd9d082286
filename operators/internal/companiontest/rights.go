// SPDX-License-Identifier: Apache-2.0

package companiontest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"
)

// Right is one thing that somebody may do: "update secrets/webhook-certificate", or "patch
// cpumanagerpolicies.cpupolicy.workload.openshift.io/status". The name of an object comes last.
type Right struct {
	Verb, Group, Resource, Name string
}

func (r Right) String() string {
	resource := r.Resource
	if r.Group != "" {
		main, subresource, has := strings.Cut(resource, "/")
		resource = main + "." + r.Group
		if has {
			resource += "/" + subresource
		}
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Verb, resource, r.Name))
}

// role is what the generated file of a companion has: a ClusterRole, and Roles.
type role struct {
	kind, name, namespace string
	rules                 []rbacv1.PolicyRule
}

func roles(t testing.TB, name string) (roles []role) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(Base(name), "rbac", "role.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if hosted, err := os.ReadFile(filepath.Join(Base(name), "hosted", "role.yaml")); err == nil {
		data = append(append(data, "\n---\n"...), hosted...)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := documents.Read()
		if err != nil {
			break
		}
		// A ClusterRole has the same fields, and others that the generator does not use.
		var read rbacv1.Role
		if err := yaml.UnmarshalStrict(document, &read); err != nil {
			t.Fatal(err)
		}
		roles = append(roles, role{kind: read.Kind, name: read.Name, namespace: read.Namespace, rules: read.Rules})
	}
	if len(roles) == 0 {
		t.Fatalf("there is no role in %s", Base(name))
	}
	return roles
}

// rights are those of a role, one by one.
func (r role) rights() (rights []Right) {
	for _, rule := range r.rules {
		for _, verb := range rule.Verbs {
			for _, path := range rule.NonResourceURLs {
				rights = append(rights, Right{Verb: verb, Resource: path})
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					if len(rule.ResourceNames) == 0 {
						rights = append(rights, Right{verb, group, resource, ""})
					}
					for _, name := range rule.ResourceNames {
						rights = append(rights, Right{verb, group, resource, name})
					}
				}
			}
		}
	}
	return rights
}

// The groups of Machines, which only workloadclasses may write.
var machines = []string{"machine.openshift.io", "cluster.x-k8s.io"}

// rightsAreModest looks at what a companion may do, wherever it does it.
func rightsAreModest(t *testing.T, name string) {
	reads := []string{"get", "list", "watch"}
	for _, role := range roles(t, name) {
		for _, right := range role.rights() {
			// That of control planes is bound in their namespaces alone.
			everywhere := role.kind == "ClusterRole" && right.Name == "" && role.name != name+"-controlplane"
			for _, wrong := range []struct {
				is  bool
				why string
			}{
				{right.Verb == "*" || right.Group == "*" || strings.Contains(right.Resource, "*"), "it is a wildcard"},
				{slices.Contains([]string{"escalate", "bind", "impersonate", "impersonate:arbitrary-node"}, right.Verb), "its holder may have every other right"},
				{right.Group == rbacv1.GroupName && !slices.Contains(reads, right.Verb), "its holder may have every other right"},
				{right.Group == "" && right.Resource == "serviceaccounts/token", "its holder may be anybody"},
				{everywhere && right.Group == "" && right.Resource == "secrets", "the Secrets of others have what is theirs"},
				{everywhere && right.Group == "" && slices.Contains([]string{"pods/exec", "pods/attach", "pods/portforward", "nodes/proxy"}, right.Resource), "its holder may be anybody"},
				{everywhere && right.Group == "" && right.Resource == "pods" && right.Verb == "create", "its holder may be anybody"},
				{role.name == name+"-webhooks" && slices.Contains([]string{"create", "delete"}, right.Verb) && !strings.HasSuffix(right.Resource, "reviews") && right.Resource != "events", "every pod may reach what has it"},
				{name != "workloadclasses" && slices.Contains(machines, right.Group) && !slices.Contains(reads, right.Verb), "only workloadclasses may write Machines"},
			} {
				if wrong.is {
					t.Errorf("%s %s: %s", role.kind, right, wrong.why)
				}
			}
		}
	}
}

// used returns the rights that somebody has used so far, as kube-apiserver's audit log has it, each
// with and without the name of the object, and those that were missing.
func (i *Installed) used(t testing.TB, user string) (used, missing map[Right]bool) {
	t.Helper()
	file, err := os.Open(i.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	used, missing = map[Right]bool{}, map[Right]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatal(err)
		}
		if event.User.Username != user || event.ObjectRef == nil || event.ImpersonatedUser != nil { // that user's rights count
			continue
		}
		right := Right{event.Verb, event.ObjectRef.APIGroup, event.ObjectRef.Resource, event.ObjectRef.Name}
		if event.ObjectRef.Subresource != "" {
			right.Resource += "/" + event.ObjectRef.Subresource
		}
		if event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusForbidden {
			missing[right] = true
			continue
		}
		used[right] = true
		used[Right{right.Verb, right.Group, right.Resource, ""}] = true
		// An informer lists where kube-apiserver cannot stream what there is.
		if right.Verb == "watch" {
			used[Right{"list", right.Group, right.Resource, right.Name}] = true
			used[Right{"list", right.Group, right.Resource, ""}] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return used, missing
}

// skipped are the reasons of the tests that Skip has skipped.
var skipped []string

// Skip skips a test that uses rights of the companion. Then nobody can say which of them are used.
func Skip(t testing.TB, format string, arguments ...any) {
	t.Helper()
	why := fmt.Sprintf(format, arguments...)
	skipped = append(skipped, why)
	t.Skip(why)
}

// Missing returns the rights that a ServiceAccount has missed so far.
func (i *Installed) Missing(t testing.TB, namespace, account string) map[Right]bool {
	t.Helper()
	_, missing := i.used(t, fmt.Sprintf("system:serviceaccount:%s:%s", namespace, account))
	return missing
}

// usesItsRights compares what a companion may do with what it has done, or tried, in the tests before.
func (s Subject) usesItsRights(t *testing.T, i *Installed) {
	without := skipped
	if testing.Short() {
		without = append(without, "-short leaves tests out")
	}
	var unseen []string
	type holder struct {
		in      *Installed
		account string
	}
	holders := map[string]holder{i.Name: {i, controllersAccount}, i.Name + "-webhooks": {i, webhooksAccount}}
	if i.Hosted != nil {
		holders[i.Name+"-controlplane"], holders[i.Name+"-hosted"] = holder{i, controllersAccount}, holder{i.Hosted, i.Name}
	}
	for name, holder := range holders {
		user := holder.in.user(holder.account)
		used, missing := holder.in.used(t, user)
		for right := range missing {
			if s.Bound != nil && s.Bound(right) {
				continue
			}
			t.Errorf("%s may not %s, and has tried to", user, right)
		}
		var all []Right
		for _, role := range roles(t, i.Name) {
			if role.name == name {
				all = append(all, role.rights()...)
			}
		}
		slices.SortFunc(all, func(a, b Right) int { return cmp.Compare(a.String(), b.String()) })
		for _, right := range all {
			reason, excused := s.Unused[name][right]
			switch {
			case !used[right] && !excused && len(without) > 0:
				unseen = append(unseen, fmt.Sprintf("%s may %s", user, right))
			case !used[right] && !excused:
				t.Errorf("%s may %s, and no test made it do so", user, right)
			case used[right] && excused:
				t.Errorf("%s does %s, which was said to be impossible in a test: %s", user, right, reason)
			}
		}
		for right := range s.Unused[name] {
			if !slices.Contains(all, right) {
				t.Errorf("%s may not %s, which was said to be unused", user, right)
			}
		}
	}
	if len(unseen) > 0 {
		t.Skipf("tests that use rights were skipped: %s; so it is not known whether these are used:\n%s", strings.Join(without, ", "), strings.Join(unseen, "\n"))
	}
}
