// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"fmt"
	"testing"

	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

func TestReadProfile(t *testing.T) {
	for name, test := range map[string]struct{ text, units, included string }{
		"nothing":                               {"", "[]", "[]"},
		"an option before any section":          {"a=b\n[sysctl]\n", "[{sysctl sysctl true []}]", "[]"},
		"options and comments":                  {"[sysctl]\n# no\n; no\nkernel.a = 1 # why\nkernel.b=2\n", "[{sysctl sysctl true [{kernel.a 1} {kernel.b 2}]}]", "[]"},
		"a section of another type":             {"[mine]\ntype=sysctl\na=1\n", "[{mine sysctl true [{a 1}]}]", "[]"},
		"a section that is switched off":        {"[vm]\nenabled=false\na=1\n", "[{vm vm false [{a 1}]}]", "[]"},
		"and one by a word that is not TuneD's": {"[vm]\nenabled=yes\n[sysctl]\nenabled=True\n", "[{vm vm false []} {sysctl sysctl true []}]", "[]"},
		"included profiles":                     {"[main]\ninclude=a, b ;c\n", "[]", "[a b c]"},
		"an include that TuneD computes":        {"[main]\ninclude=${f:virt_check:a:b}\n", "[]", "[]"},
		"variables are no plugin":               {"[variables]\nx=1\n[vm]\n", "[{vm vm true []}]", "[]"},
		"main's summary is no option":           {"[main]\nsummary=x\ntype=y\n[vm]\n", "[{vm vm true []}]", "[]"},
		"lines that end with a return":          {"[sysctl]\r\na=1\r\n", "[{sysctl sysctl true [{a 1}]}]", "[]"},
		"a value with an equals sign":           {"[bootloader]\ncmdline=a=b c=d\n", "[{bootloader bootloader true [{cmdline a=b c=d}]}]", "[]"},
		"a value that goes on":                  {"[bootloader]\ncmdline=+a=1\n   b=2 # why\n\n\t[c]\nd=1\n", "[{bootloader bootloader true [{cmdline +a=1\nb=2\n[c]} {d 1}]}]", "[]"},
		"a profile that is indented":            {"  [main]\n  include=a,\n    b\n  [vm]\n  enabled=0\n  a=1\n", "[{vm vm false [{a 1}]}]", "[a b]"},
		"a comment after a tab":                 {"[sysctl]\na=1\t# why\nb=x#y\n", "[{sysctl sysctl true [{a 1} {b x#y}]}]", "[]"},
		"an option without an equals one":       {"[sysctl]\na\n", "[{sysctl sysctl true [{a }]}]", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			units, _, included := readProfile(test.text)
			if got := fmt.Sprint(units); got != test.units {
				t.Errorf("the units are %s, want %s", got, test.units)
			}
			if got := fmt.Sprint(included); got != test.included {
				t.Errorf("included are %s, want %s", got, test.included)
			}
		})
	}
}

func spec(profile string, named ...string) tunedv1.ProfileSpec {
	s := tunedv1.ProfileSpec{Config: tunedv1.ProfileConfig{TunedProfile: profile}}
	for i := 0; i < len(named); i += 2 {
		s.Profile = append(s.Profile, tunedv1.TunedProfile{Name: named[i], Data: named[i+1]})
	}
	return s
}

func TestChangeOf(t *testing.T) {
	base := "[sysctl]\nkernel.a=1\n"
	for name, test := range map[string]struct {
		before *tunedv1.ProfileSpec
		after  tunedv1.ProfileSpec
		want   string
	}{
		"nothing":                               {ptrTo(spec("p", "p", base)), spec("p", "p", base), "nothing"},
		"a profile that no node uses":           {ptrTo(spec("p", "p", base)), spec("p", "p", base, "q", "[sysctl]\nb=1\n"), "nothing"},
		"a node without a Profile":              {nil, spec("p", "p", base), " > p [{kernel.a  1}] [] [] []"},
		"a value":                               {ptrTo(spec("p", "p", base)), spec("p", "p", "[sysctl]\nkernel.a=2\n"), "p > p [{kernel.a 1 2}] [] [] []"},
		"a value that goes":                     {ptrTo(spec("p", "p", base)), spec("p", "p", "[sysctl]\nkernel.b=2\n"), "p > p [{kernel.a 1 } {kernel.b  2}] [] [] []"},
		"another profile with the same values":  {ptrTo(spec("p", "p", base, "q", base)), spec("q", "p", base, "q", base), "p > q [] [] [] []"},
		"a value of an included profile":        {ptrTo(spec("p", "p", "[main]\ninclude=q\n", "q", base)), spec("p", "p", "[main]\ninclude=q\n", "q", "[sysctl]\nkernel.a=3\n"), "p > p [{kernel.a 1 3}] [] [] []"},
		"an included value that is overridden":  {ptrTo(spec("p", "p", "[main]\ninclude=q\n"+base, "q", base)), spec("p", "p", "[main]\ninclude=q\n"+base, "q", "[sysctl]\nkernel.a=3\n"), "nothing"},
		"an include of TuneD's package":         {ptrTo(spec("p", "p", base)), spec("p", "p", "[main]\ninclude=openshift-node\n"+base), "p > p [] [] [openshift-node] []"},
		"kernel arguments":                      {ptrTo(spec("p", "p", base)), spec("p", "p", base+"[bootloader]\ncmdline_x=+nohz=on\n"), "p > p [] [{cmdline_x  +nohz=on}] [] [bootloader]"},
		"from the default to a pool's own":      {ptrTo(spec("openshift-node")), spec("p", "p", base), "openshift-node > p [{kernel.a  1}] [] [openshift-node] []"},
		"profiles that include each other":      {ptrTo(spec("p", "p", "[main]\ninclude=q\n", "q", "[main]\ninclude=p\n")), spec("p", "p", "[main]\ninclude=q\n", "q", "[main]\ninclude=p\n"), "nothing"},
		"a section that is switched off counts": {ptrTo(spec("p", "p", base)), spec("p", "p", "[sysctl]\nenabled=0\nkernel.a=1\n"), "p > p [{kernel.a 1 }] [] [] []"},
	} {
		t.Run(name, func(t *testing.T) {
			got := "nothing"
			if c := ChangeOf("n", test.before, Choice{}, test.after); c != nil {
				got = fmt.Sprintf("%s > %s %v %v %v %v", c.From, c.To, c.Sysctls, c.Arguments, c.Packaged, c.Plugins)
			}
			if got != test.want {
				t.Errorf("the change is %s, want %s", got, test.want)
			}
		})
	}
}

func ptrTo[T any](value T) *T { return &value }
