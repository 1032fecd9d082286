// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
)

func TestShortenName(t *testing.T) {
	long := strings.Repeat("a", 60)
	for name, test := range map[string]struct{ name, pool, want string }{
		"a short name stays whole":                       {"kubelet", "pool-a", "kubelet-pool-a"},
		"one of 63 characters stays whole":               {long[:56], "pool-a", long[:56] + "-pool-a"},
		"one of 64 is cut, and has its hash":             {long[:57], "pool-a", long[:47] + "-1a62c174-pool-a"},
		"a cut at a dot loses the dot":                   {strings.Repeat("a", 46) + "." + long[:20], "pool-a", strings.Repeat("a", 46) + "-7b80232b-pool-a"},
		"a cut at a dash keeps the dash":                 {strings.Repeat("a", 46) + "-" + long[:20], "pool-a", strings.Repeat("a", 46) + "--97c3cf46-pool-a"},
		"a pool of 52 characters leaves one of the name": {"kubelet-config", long[:52], "k-72a5f68e-" + long[:52]},
		"a pool of 53 characters leaves none":            {"kubelet-config", long[:53], "72a5f68e-" + long[:53]},
		"a pool of 54 characters is in the hash alone":   {"kubelet-config", long[:54], "kubelet-config-dfa64def"},
		"and the name may be long as well":               {strings.Repeat("b", 60), long, strings.Repeat("b", 54) + "-1c9eab9c"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ShortenName(test.name, test.pool)
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if len(got) > 63 {
				t.Errorf("%s has %d characters", got, len(got))
			}
			if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 {
				t.Errorf("kube-apiserver refuses the name %s: %v", got, problems)
			}
		})
	}
}

func TestNamesThatCollide(t *testing.T) {
	if first, second := ShortenName("a-b", "c"), ShortenName("a", "b-c"); first != second {
		t.Errorf("a dash may belong to either, and the names are %s and %s", first, second)
	}
	if first, second := ShortenName("tuned", "c"), v1beta1.TunedConfigMapName("c"); first != second {
		t.Errorf("a copy may have the name of the pool's Tuneds, and the names are %s and %s", first, second)
	}
}

func FuzzShortenName(f *testing.F) {
	f.Add("kubelet", "pool-a")
	f.Add(strings.Repeat("a.", 40)+"a", strings.Repeat("b", 63))
	f.Fuzz(func(t *testing.T, name, pool string) {
		if len(validation.IsDNS1123Subdomain(name)) > 0 || len(validation.IsDNS1123Subdomain(pool)) > 0 || len(pool) > 63 {
			t.Skip()
		}
		got := ShortenName(name, pool)
		if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 || len(got) > 63 {
			t.Errorf("ShortenName(%q, %q) is %q: %v", name, pool, got, problems)
		}
	})
}
