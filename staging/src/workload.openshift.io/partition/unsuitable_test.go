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

package partition

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

func TestPoolsThatUpstreamMayGiveAway(t *testing.T) {
	for name, test := range map[string]struct {
		pool, reserved string
		// cores and sockets are CPU lists, with blanks between them.
		cores, sockets string
		want           string
	}{
		"cores are alike, and the pool splits one":                          {pool: "0", cores: "0-1 2-3", sockets: "0-3"},
		"cores have no siblings":                                            {pool: "0", cores: "0 1 2 3", sockets: "0-3"},
		"two kinds of cores, and the pool splits one":                       {pool: "0", cores: "0-1 2-3 4 5", sockets: "0-5", want: "0"},
		"two kinds of cores, and the pool has whole ones":                   {pool: "0-1,4", cores: "0-1 2-3 4 5", sockets: "0-5"},
		"two kinds of cores, and all of the split one is reserved":          {pool: "0", reserved: "0-1", cores: "0-1 2-3 4 5", sockets: "0-5"},
		"two kinds of cores, and the split one is in no pool":               {pool: "4", reserved: "0,4", cores: "0-1 2-3 4 5", sockets: "0-5"},
		"a sibling is offline, and the pool splits another core":            {pool: "0", cores: "0-1 2", sockets: "0-2", want: "0"},
		"four threads or two, and fewer are free than the average":          {pool: "0-1", cores: "0-3 4-5 6-9", sockets: "0-9"},
		"four threads or two, and as many are free as the average":          {pool: "0", cores: "0-3 4-5 6-9", sockets: "0-9", want: "0"},
		"sockets differ, and the larger one has as many free as on average": {pool: "0", cores: "0 1 2 3 4 5", sockets: "0-3 4-5", want: "0"},
		"sockets differ, and the smaller one has the pool":                  {pool: "4", cores: "0 1 2 3 4 5", sockets: "0-3 4-5"},
		"nothing is known of the host":                                      {pool: "0"},
		"the pool has no CPU":                                               {cores: "0-1 2", sockets: "0-2"},
	} {
		t.Run(name, func(t *testing.T) {
			lists := func(text string) (sets []cpuset.CPUSet) {
				for _, list := range strings.Fields(text) {
					sets = append(sets, parseList(t, list))
				}
				return sets
			}
			pools := Pools{"management": parseList(t, test.pool)}
			if got := pools.GivenAway(parseList(t, test.reserved), lists(test.cores), lists(test.sockets)); got.String() != test.want {
				t.Errorf("given away are %q, want %q", got, test.want)
			}
		})
	}
}

func TestOnlyOldReleasesGiveReservedCPUsAway(t *testing.T) {
	for release, want := range map[string]bool{"1.33": true, "1.37": true, "1.38": false, "1.40": false} {
		if got := GivesReservedAway(release); got != want {
			t.Errorf("v%s: %v", release, got)
		}
	}
}

func TestPoolsOnIsolatedCPUs(t *testing.T) {
	for name, test := range map[string]struct {
		pool, isolated, want, message string
	}{
		"nothing is isolated":         {pool: "0-1"},
		"others are isolated":         {pool: "0-1", isolated: "2-3"},
		"all of the pool is isolated": {pool: "2-3", isolated: "2-5", want: "2-3", message: "so all of the type's pods crowd onto one of them, usually the first"},
		"a part is isolated":          {pool: "1-3", isolated: "2-5", want: "2-3", message: "so they stay idle while CPU 1 of the pool is busy"},
		"a single CPU is isolated":    {pool: "2", isolated: "2-5"},
	} {
		pools, want := Pools{"management": parseList(t, test.pool), "empty": cpuset.New()}, map[string]cpuset.CPUSet{}
		if test.want != "" {
			want["management"] = parseList(t, test.want)
		}
		got := pools.OnIsolated(parseList(t, test.isolated))
		if !maps.EqualFunc(got, want, cpuset.CPUSet.Equals) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		if message := OnIsolatedMessage("management", pools["management"], got["management"]); !strings.Contains(message, test.message) {
			t.Errorf("%s: the message is %q", name, message)
		}
	}
}

func parseList(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	cpus, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return cpus
}
