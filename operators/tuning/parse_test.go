// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

const valid = `apiVersion: tuned.openshift.io/v1
kind: Tuned
metadata:
  name: queues
spec:
  profile:
  - name: queues
    data: |
      [main]
      summary=Larger queues
      include=openshift-node
      [sysctl]
      kernel.msgmnb=32768
  recommend:
  - profile: queues
    priority: 20
`

func TestParse(t *testing.T) {
	other := strings.ReplaceAll(valid, "queues", "other")
	for name, test := range map[string]struct {
		text string
		// names of the Tuneds, or faults as document:line and a part of the text.
		names, faults []string
	}{
		"nothing":                                             {"", nil, nil},
		"nothing but separators and comments":                 {"---\n# none\n---\n\n---\n", nil, nil},
		"one document":                                        {valid, []string{"queues"}, nil},
		"a separator first":                                   {"---\n" + valid, []string{"queues"}, nil},
		"two documents":                                       {valid + "---\n" + other, []string{"queues", "other"}, nil},
		"a separator with a comment":                          {valid + "--- # the second\n" + other, []string{"queues", "other"}, nil},
		"lines that end with a carriage return":               {strings.ReplaceAll(valid, "\n", "\r\n"), []string{"queues"}, nil},
		"a typo in a field":                                   {strings.Replace(valid, "recommend:", "recomend:", 1), nil, []string{`1:14 unknown field "spec.recomend"`}},
		"a typo in a field of the second":                     {valid + "---\n" + strings.Replace(other, "priority:", "prioity:", 1), nil, []string{`2:33 unknown field "spec.recommend[0].prioity"`}},
		"a field that is given twice":                         {valid + "    priority: 30\n", nil, []string{`1:17 key "priority" already set`}},
		"text that is no YAML":                                {strings.Replace(valid, "kind: Tuned", "kind Tuned", 1), nil, []string{"1:2 it is no YAML: could not find expected ':'"}},
		"text that is no YAML, in the second":                 {valid + "---\n" + strings.Replace(other, "  name: other\n", "  name: other: x\n", 1), nil, []string{"2:21 it is no YAML: mapping values are not allowed"}},
		"a text where a number is expected":                   {strings.Replace(valid, "priority: 20", "priority: high", 1), nil, []string{"1:16 spec.recommend.priority: Invalid value: string where a whole number is expected"}},
		"a mapping where a list is expected":                  {strings.Replace(valid, "  - profile: queues\n    priority: 20", "    profile: queues\n    priority: 20", 1), nil, []string{"1:14 spec.recommend: Invalid value: object where a list is expected"}},
		"a list":                                              {"- a\n- b\n", nil, []string{`1:1 apiVersion and kind are required; it has "" and ""`}},
		"another kind":                                        {strings.Replace(valid, "kind: Tuned", "kind: Profile", 1), nil, []string{`1:2 kind: "Profile" of apiVersion "tuned.openshift.io/v1" cannot be used here`}},
		"another version":                                     {strings.Replace(valid, "io/v1", "io/v2", 1), nil, []string{`1:2 kind: "Tuned" of apiVersion "tuned.openshift.io/v2" cannot be used here`}},
		"no name":                                             {strings.Replace(valid, "  name: queues\n", "  labels: {}\n", 1), nil, []string{"1:1 the Tuned has no metadata.name"}},
		"a name that no object can have":                      {strings.Replace(valid, "  name: queues\n", "  name: Queues\n", 1), nil, []string{`1:4 metadata.name: Invalid value: "Queues"`}},
		"a name that is too long in another cluster":          {strings.Replace(valid, "  name: queues\n", "  name: "+strings.Repeat("a", 245)+"\n", 1), nil, []string{`1:4 metadata.name: Too long`}},
		"another namespace":                                   {strings.Replace(valid, "  name: queues\n", "  name: queues\n  namespace: clusters\n", 1), nil, []string{`1:5 metadata.namespace: Invalid value: "clusters"`}},
		"one that is put off":                                 {strings.Replace(valid, "  name: queues\n", "  name: queues\n  annotations: {tuned.openshift.io/deferred: always}\n", 1), []string{"queues"}, nil},
		"one whose updates are put off":                       {strings.Replace(valid, "  name: queues\n", "  name: queues\n  annotations: {tuned.openshift.io/deferred: update}\n", 1), []string{"queues"}, nil},
		"one that is put off in another way":                  {strings.Replace(valid, "  name: queues\n", "  name: queues\n  annotations:\n    tuned.openshift.io/deferred: Always\n", 1), nil, []string{`1:6 metadata.annotations[tuned.openshift.io/deferred]: Unsupported value: "Always"`}},
		"one that is not put off":                             {strings.Replace(valid, "  name: queues\n", "  name: queues\n  annotations: {tuned.openshift.io/deferred: never}\n", 1), []string{"queues"}, nil},
		"a status":                                            {valid + "status:\n  conditions:\n  - type: Valid\n", nil, []string{"1:17 status: Forbidden"}},
		"an unmanaged one":                                    {strings.Replace(valid, "spec:\n", "spec:\n  managementState: Unmanaged\n", 1), nil, []string{`1:6 spec.managementState: Unsupported value: "Unmanaged"`}},
		"a profile without data":                              {strings.Replace(valid, "  recommend:", "  - name: empty\n    data: ''\n  recommend:", 1), nil, []string{"1:15 spec.profile[1].data: Required value"}},
		"a profile that would be another directory":           {strings.Replace(valid, "- name: queues", "- name: ../etc", 1), nil, []string{`1:7 spec.profile[0].name: Invalid value: "../etc"`}},
		"a profile that is a directory above":                 {strings.Replace(valid, "- name: queues", "- name: ..", 1), nil, []string{`1:7 spec.profile[0].name: Invalid value: ".."`}},
		"a profile that TuneD would take for an optional one": {strings.Replace(valid, "- name: queues", "- name: -queues", 1), nil, []string{`1:7 spec.profile[0].name: Invalid value: "-queues"`}},
		"a recommendation without a profile":                  {strings.Replace(valid, "profile: queues\n    priority", "profile: ''\n    priority", 1), nil, []string{"1:15 spec.recommend[0].profile: Required value"}},
		"a negative priority":                                 {strings.Replace(valid, "priority: 20", "priority: -1", 1), nil, []string{"1:16 spec.recommend[0].priority: Invalid value: -1"}},
		"a rule without a label":                              {valid + "    match:\n    - value: x\n", nil, []string{"1:18 spec.recommend[0].match[0].label: Required value"}},
		"a rule about something else":                         {valid + "    match:\n    - label: a\n      type: machine\n", nil, []string{`1:19 spec.recommend[0].match[0].type: Unsupported value: "machine"`}},
		"a rule below a rule":                                 {valid + "    match:\n    - label: a\n      match:\n      - label: a b\n", nil, []string{`1:20 spec.recommend[0].match[0].match[0].label: Invalid value: "a b"`}},
		"two Tuneds of one name": {
			valid + "---\n" + strings.Replace(other, "  name: other\n", "  name: queues\n", 1), nil,
			[]string{`1:4 metadata.name: Invalid value: "queues": two Tuneds`, `2:21 metadata.name: Invalid value: "queues": two Tuneds`},
		},
		"two different profiles of one name": {
			valid + "---\n" + strings.Replace(other, "- name: other", "- name: queues", 1), nil,
			[]string{`1:7 spec.profile[0].name: Invalid value: "queues": two profiles`, `2:24 spec.profile[0].name: Invalid value: "queues": two profiles`},
		},
		"one profile in two Tuneds": {valid + "---\n" + strings.Replace(valid, "  name: queues\n", "  name: again\n", 1), []string{"queues", "again"}, nil},
		"two faults": {
			strings.Replace(strings.Replace(valid, "kernel", "kernel", 1), "priority: 20", "priority: -1", 1) + "---\nkind: [\n", nil,
			[]string{"1:16 spec.recommend[0].priority", "2:"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tuneds, err := Parse("clusters-a/tuned-pool-a", test.text)
			var names []string
			for _, tuned := range tuneds {
				names = append(names, tuned.Name)
			}
			if fmt.Sprint(names) != fmt.Sprint(test.names) {
				t.Errorf("the Tuneds are %v, want %v", names, test.names)
			}
			var invalid *Invalid
			if len(test.faults) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.As(err, &invalid) || len(invalid.Problems) != len(test.faults) {
				t.Fatalf("the error is %v, want %q", err, test.faults)
			}
			for i, fault := range invalid.Problems {
				if got := fmt.Sprintf("%d:%d %s", fault.Document, fault.Line, fault.Text); !strings.HasPrefix(got, test.faults[i]) {
					t.Errorf("the fault is %q, want %q", got, test.faults[i])
				}
			}
		})
	}
}

func TestAnErrorNamesConfigMapDocumentAndLine(t *testing.T) {
	_, err := Parse("clusters-a/tuned-pool-a", valid+"---\n"+strings.Replace(valid, "prio", "pri", 1))
	if want := `ConfigMap clusters-a/tuned-pool-a, key tuning: document 2, line 33: unknown field "spec.recommend[0].pririty"`; fmt.Sprint(err) != want {
		t.Errorf("the error is\n%v, want\n%s", err, want)
	}
	_, err = Parse("a/b", strings.Repeat("---\nkind: X\n", 9))
	if want := "; and 4 more"; !strings.HasSuffix(fmt.Sprint(err), want) {
		t.Errorf("the error is\n%v, want\n%s", err, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(valid)
	f.Add(valid + "---\n" + valid)
	f.Add("a: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		tuneds, err := Parse("a/b", text)
		if err != nil && len(tuneds) > 0 {
			t.Error("some of an invalid text counts")
		}
		var invalid *Invalid
		if err != nil && !errors.As(err, &invalid) {
			t.Errorf("the error is %T", err)
		}
		lines := strings.Count(text, "\n") + 1
		if invalid != nil {
			for _, fault := range invalid.Problems {
				if fault.Line < 1 || fault.Line > lines+1 || fault.Document < 1 {
					t.Errorf("a fault at document %d, line %d of %d lines: %s", fault.Document, fault.Line, lines, fault.Text)
				}
			}
		}
	})
}

func TestHostedNames(t *testing.T) {
	// fnv32a of the names, computed by another implementation.
	for pool, want := range map[string]string{"pool-a": "queues-c82f3ed1", "": "queues-811c9dc5"} {
		if got := HostedName("queues", pool); got != want {
			t.Errorf("the Tuned of NodePool %q is %s, want %s", pool, got, want)
		}
	}
}

func TestAHostedTunedHasTheLabelOfItsPool(t *testing.T) {
	tuneds, err := Parse("a/b", valid)
	if err != nil {
		t.Fatal(err)
	}
	tuneds[0].Labels = map[string]string{tunedv1.NodePoolNameLabel: "another", "team": "a"}
	hosted := Hosted(&tuneds[0], "pool-a")
	if hosted.Labels[tunedv1.NodePoolNameLabel] != "pool-a" || hosted.Labels["team"] != "a" || hosted.Namespace != tunedv1.Namespace {
		t.Errorf("the hosted Tuned is %v", hosted.ObjectMeta)
	}
	if tuneds[0].Labels[tunedv1.NodePoolNameLabel] != "another" {
		t.Error("the source was changed")
	}
}
