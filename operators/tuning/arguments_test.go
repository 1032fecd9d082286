// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

var updateIndex = flag.Bool("update", false, "write packaged.json from this host's package tuned")

// The arguments of a profile are measured by the package that the operand's image has. Debian's is also on this host.
func TestTheIndexIsThatOfTheTunedPackage(t *testing.T) {
	paths, err := filepath.Glob("/usr/lib/tuned/*/tuned.conf")
	if err != nil || len(paths) == 0 {
		t.Skip("this host has no package tuned")
	}
	profiles := map[string]string{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		units, variables, included := readProfile(string(data))
		var text strings.Builder
		if len(included) > 0 {
			text.WriteString("[main]\ninclude=" + strings.Join(included, ",") + "\n")
		}
		if len(variables) > 0 {
			text.WriteString("[variables]\n")
		}
		for _, option := range variables {
			text.WriteString(option.Name + "=" + option.Value + "\n")
		}
		for _, unit := range units {
			if unit.Plugin != "bootloader" {
				continue
			}
			text.WriteString("[" + unit.Name + "]\n")
			if unit.Plugin != unit.Name {
				text.WriteString("type=" + unit.Plugin + "\n")
			}
			for _, option := range unit.Options {
				if strings.HasPrefix(option.Name, "cmdline") || slices.Contains(conditional, option.Name) {
					text.WriteString(option.Name + "=" + option.Value + "\n")
				}
			}
		}
		if text.Len() > 0 {
			profiles[filepath.Base(filepath.Dir(path))] = text.String()
		}
	}
	data, err := json.MarshalIndent(profiles, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	data = append(data, '\n')
	if *updateIndex {
		if err := os.WriteFile("packaged.json", data, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(data) != string(packaged) {
		t.Error("packaged.json is not made from the package tuned of this host; -update writes it")
	}
}

// specOf is that of a node with the first of these profiles: pairs of a name and a text.
func specOf(pairs ...string) tunedv1.ProfileSpec {
	s := tunedv1.ProfileSpec{Config: tunedv1.ProfileConfig{TunedProfile: pairs[0]}}
	for i := 0; i < len(pairs); i += 2 {
		s.Profile = append(s.Profile, tunedv1.TunedProfile{Name: pairs[i], Data: pairs[i+1]})
	}
	return s
}

func TestKernelArgumentsThatAnOperandReports(t *testing.T) {
	literal := specOf("latency", "[bootloader]\ncmdline_a=+nosoftlockup skew_tick=1\ncmdline_b=audit=0\n")
	computed := specOf("latency", "[variables]\ncpus=2-3\nflags=managed_irq\n[bootloader]\ncmdline=isolcpus=${flags},${f:cpulist_online:${cpus}} nohz_full=${cpus} foo=${f:exec:cat:/proc/x}\n")
	for name, test := range map[string]struct {
		spec                tunedv1.ProfileSpec
		report, want, error string
	}{
		"none of a profile without any":                       {specOf("queues", "[sysctl]\nvm.swappiness=1\n"), "", "", ""},
		"those that the profile has literally":                {literal, "nosoftlockup skew_tick=1 audit=0", "nosoftlockup skew_tick=1 audit=0", ""},
		"a key that no section has":                           {literal, "init=/bin/sh", "", "init=/bin/sh: no [bootloader] section of the profile latency, or of those that it includes, has init"},
		"another value than the profile's":                    {literal, "skew_tick=0", "", "skew_tick=0: the profile latency has skew_tick=1"},
		"a value where the profile has a word":                {literal, "nosoftlockup=0", "", "nosoftlockup=0: the profile latency has nosoftlockup"},
		"a word where the profile has a value":                {literal, "audit", "", "audit: the profile latency has audit=0"},
		"the rest where one is refused":                       {literal, "audit=0 rd.break", "audit=0", "rd.break"},
		"a list of CPUs that was computed":                    {computed, "isolcpus=managed_irq,2-3", "isolcpus=managed_irq,2-3", ""},
		"a flag that a variable has":                          {computed, "nohz_full=2-3", "nohz_full=2-3", ""},
		"a flag that a variable has not":                      {computed, "nohz_full=4-5", "", "nohz_full=4-5: the profile latency has nohz_full=2-3"},
		"another flag before what was computed":               {computed, "isolcpus=domain,2-3", "", "only digits"},
		"a mask that was computed":                            {computed, "foo=0xff,ff:1.2-3", "foo=0xff,ff:1.2-3", ""},
		"nothing where something is computed":                 {computed, "foo=", "foo=", ""},
		"a path that was computed":                            {computed, "foo=/bin/sh", "", "foo=/bin/sh: the profile latency has foo=${f:exec:cat:/proc/x}, and what is computed can have only digits"},
		"a word that was computed":                            {computed, "foo=system", "", "only digits"},
		"a computed value with another argument in it":        {computed, "foo=1\u00a0init=/x", "foo=1", "init=/x"},
		"a variable that nobody has defined":                  {specOf("p", "[bootloader]\ncmdline=a=${nowhere}\n"), "a=${nowhere}", "", "only digits"},
		"those that the profile has in quotes":                {specOf("p", "[bootloader]\ncmdline=\"a=${f:exec:x} b=1\"\n"), "a=2 b=1", "a=2 b=1", ""},
		"a key that is computed":                              {specOf("p", "[bootloader]\ncmdline=${f:exec:x} b=1\n"), "anything", "", "no [bootloader] section"},
		"a variable of variables":                             {specOf("p", "[variables]\na=1\nb=${a}-3\n[bootloader]\ncmdline=x=${b}\n"), "x=1-3", "x=1-3", ""},
		"an escaped variable":                                 {specOf("p", "[bootloader]\ncmdline=x=\\${a} b=1\n"), "x=${a} b=1", "x=${a} b=1", ""},
		"those of an included profile of the NodePool":        {specOf("p", "[main]\ninclude=q\n", "q", "[bootloader]\ncmdline=q=1\n"), "q=1", "q=1", ""},
		"those of TuneD's own profile":                        {specOf("p", "[main]\ninclude=network-latency\n"), "skew_tick=1", "skew_tick=1", ""},
		"those of TuneD's own profile, with our variable":     {specOf("p", "[main]\ninclude=cpu-partitioning\n[variables]\nisolated_cores=2-3\n"), "nohz=on nohz_full=2-3 rcu_nocbs=2-3 tuned.non_isolcpus=00000003 intel_pstate=disable nosoftlockup skew_tick=1", "nohz=on nohz_full=2-3 rcu_nocbs=2-3 tuned.non_isolcpus=00000003 intel_pstate=disable nosoftlockup skew_tick=1", ""},
		"those of a profile that replaces TuneD's":            {specOf("p", "[main]\ninclude=network-latency\n", "network-latency", "[bootloader]\ncmdline=q=1\n"), "skew_tick=1", "", "no [bootloader] section"},
		"those of a profile that is not included":             {specOf("p", "[sysctl]\na=1\n", "q", "[bootloader]\ncmdline=q=1\n"), "q=1", "", "no [bootloader] section"},
		"those of an included profile whose name is computed": {specOf("p", "[main]\ninclude=${f:exec:x}\n", "q", "[bootloader]\ncmdline=q=1\n"), "q=1", "", "no [bootloader] section"},
		"those of a section with another name":                {specOf("p", "[boot]\ntype=bootloader\ncmdline=q=1\n"), "q=1", "q=1", ""},
		"an option of that name in another section":           {specOf("p", "[sysctl]\ncmdline=q=1\n"), "q=1", "", "no [bootloader] section"},
		"an option that is none of the command line":          {specOf("p", "[bootloader]\ngrub2_cfg_file=q=1\n"), "grub2_cfg_file=q=1", "", "no [bootloader] section"},
		"what the profile takes away":                         {specOf("p", "[bootloader]\ncmdline=-q=1\n"), "q=1", "", "no [bootloader] section"},
		"what the profile overrides":                          {specOf("p", "[main]\ninclude=q\n[bootloader]\ncmdline=+a=1\n", "q", "[bootloader]\ncmdline=+mitigations=off\n"), "a=1 mitigations=off", "a=1", "mitigations=off: no [bootloader] section"},
		"what the profile takes away from another":            {specOf("p", "[main]\ninclude=q\n[bootloader]\ncmdline_p=-mitigations=off\n", "q", "[bootloader]\ncmdline=+a=1 mitigations=off\n"), "a=1 mitigations=off", "a=1", "mitigations=off: no [bootloader] section"},
		"what the profile switches off":                       {specOf("p", "[main]\ninclude=q\n[bootloader]\nenabled=0\n", "q", "[bootloader]\ncmdline=+mitigations=off\n"), "mitigations=off", "", "mitigations=off: no [bootloader] section"},
		"what holds on some nodes only":                       {specOf("p", "[bootloader]\nuname_regex=x\ncmdline=+a=1\n"), "a=1", "a=1", ""},
		"profiles that include each other":                    {specOf("p", "[main]\ninclude=q\n", "q", "[main]\ninclude=p\n[bootloader]\ncmdline=q=1\n"), "q=1", "q=1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, refused := RequestedBy(test.spec).Accept(test.report)
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			var errors []string
			for _, each := range refused {
				errors = append(errors, each.String())
			}
			if text := strings.Join(errors, "\n"); !strings.Contains(text, test.error) || (text == "") != (test.error == "") {
				t.Errorf("got the error %q, want %q", text, test.error)
			}
		})
	}
}

func TestKernelArgumentsThatAReportLeavesOut(t *testing.T) {
	for name, test := range map[string]struct{ profile, report, want string }{
		"none": {"cmdline=lockdown=integrity audit=1\n", "audit=1 lockdown=integrity", ""},
		"one, which makes the next node less safe": {"cmdline=lockdown=integrity audit=1\n", "audit=1", "lockdown=integrity"},
		"all":                                 {"cmdline=lockdown=integrity audit=1\n", "", "lockdown=integrity audit=1"},
		"one of the same key":                 {"cmdline=audit=1\n", "audit=10", "audit=1"},
		"a literal one beside a computed one": {"cmdline=a=${f:exec:x} audit=1\n", "a=2", "audit=1"},
		"a computed one may come to nothing":  {"cmdline=audit=1 a${f:exec:x}\n", "audit=1", ""},
		"what the profile takes away":         {"cmdline_a=a=1 b=1\ncmdline_b=-a=1\n", "b=1", ""},
		"what it may take away":               {"cmdline_a=a=1 b=1\ncmdline_b=-${f:exec:x}\n", "b=1", ""},
		"what holds on some nodes only":       {"uname_regex=aarch64\ncmdline=a=1\n", "", ""},
		"what is switched off":                {"enabled=false\ncmdline=a=1\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, each := range RequestedBy(specOf("p", "[bootloader]\n"+test.profile)).Missing(test.report) {
				got = append(got, each.Argument)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// What is known before there is a node is what TuneD computes: seen with TuneD 2.20 by TestTunedComputesWhatIsForetold of the daemon.
func TestKernelArgumentsThatNoNodeHasToCompute(t *testing.T) {
	for name, test := range map[string]struct {
		spec     tunedv1.ProfileSpec
		want     string
		complete bool
	}{
		"none":                               {specOf("p", "[sysctl]\na=1\n"), "", true},
		"two options in their order":         {specOf("p", "[bootloader]\ncmdline_b=+b=1\ncmdline_a=a=1 c\n"), "b=1 a=1 c", true},
		"an included profile's come first":   {specOf("p", "[main]\ninclude=q\n[bootloader]\ncmdline_p=+p=1\n", "q", "[bootloader]\ncmdline_q=+q=1\n"), "q=1 p=1", true},
		"an option that is overridden":       {specOf("p", "[main]\ninclude=q\n[bootloader]\ncmdline=+p=1\n", "q", "[bootloader]\ncmdline=+q=1\ncmdline_z=+z=1\n"), "p=1 z=1", true},
		"one that is taken away":             {specOf("p", "[bootloader]\ncmdline_a=+a=1 b=1\ncmdline_b=-a=1\n"), "b=1", true},
		"quotes around all of them":          {specOf("p", "[bootloader]\ncmdline_a=\"a=1 b\ncmdline_b=+c=1\"\n"), "a=1 b c=1", true},
		"quotes of one argument":             {specOf("p", "[bootloader]\ncmdline=a=\"1\" b\n"), "a=\"1\" b", true},
		"a variable":                         {specOf("p", "[variables]\ncpus=2-3\n[bootloader]\ncmdline=nohz_full=${cpus}\n"), "nohz_full=2-3", true},
		"what a node computes is left out":   {specOf("p", "[bootloader]\ncmdline=a=1 b=${f:exec:x} c=1\n"), "a=1 c=1", false},
		"what holds on some nodes only":      {specOf("p", "[bootloader]\nuname_regex=aarch64\ncmdline=a=1\n"), "", false},
		"several sections":                   {specOf("p", "[bootloader]\ncmdline=a=1\n[b]\ntype=bootloader\ncmdline=b=1\n"), "", false},
		"what a node decides to take away":   {specOf("p", "[bootloader]\ncmdline_a=+a=1\ncmdline_b=-${f:exec:x}\n"), "", false},
		"a section whose type changes":       {specOf("p", "[main]\ninclude=q\n[bootloader]\ntype=sysctl\n", "q", "[bootloader]\ncmdline=a=1\n"), "", false},
		"a section that is not enabled":      {specOf("p", "[bootloader]\nenabled=false\ncmdline=a=1\n"), "", true},
		"a variable that grows beyond bound": {specOf("p", "[variables]\n"+doubling(40)+"[bootloader]\ncmdline=x=${v40}\n"), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, complete := RequestedBy(test.spec).Literal()
			if strings.Join(got, " ") != test.want || complete != test.complete {
				t.Errorf("got %q, complete %t; want %q, %t", got, complete, test.want, test.complete)
			}
		})
	}
}

func doubling(times int) string {
	text := "v0=1\n"
	for i := range times {
		text += "v" + strconv.Itoa(i+1) + "=${v" + strconv.Itoa(i) + "}${v" + strconv.Itoa(i) + "}\n"
	}
	return text
}

// Whatever an operand reports and whatever a profile has: what is accepted is the profile's own literally, or has its key and
// nothing but numbers.
func FuzzAcceptedArgumentsAreTheProfiles(f *testing.F) {
	f.Add("[bootloader]\ncmdline=a=1 b=${f:x} c\n", "a=1 b=2 c init=/bin/sh")
	f.Add("[variables]\nv=x\n[bootloader]\ncmdline_q=+a=${v},${w}\n", "a=x,0x1f")
	f.Add("[bootloader]\ncmdline=\x80", "0")
	f.Fuzz(func(t *testing.T, profile, report string) {
		requested := RequestedBy(specOf("p", profile))
		accepted, refused := requested.Accept(report)
		if len(accepted)+len(refused) != len(strings.Fields(report)) {
			t.Fatalf("%q: %d accepted, %d refused", report, len(accepted), len(refused))
		}
		for _, argument := range accepted {
			key, value, _ := strings.Cut(argument, "=")
			if !strings.Contains(profile, key[:1]) {
				t.Errorf("%q is accepted, and the profile is %q", argument, profile)
			}
			// Without a hole the whole argument is in the profile, but for what variables have brought.
			if !strings.Contains(profile, "$") && !strings.Contains(profile, argument) {
				t.Errorf("%q is accepted, and the profile %q does not have it", argument, profile)
			}
			if strings.ContainsAny(value, "/;`") && !strings.ContainsAny(profile, "/;`") {
				t.Errorf("%q is accepted, and the profile %q has no such character", argument, profile)
			}
		}
		for _, each := range refused {
			if text := each.String(); strings.ContainsAny(text, "\n\x00\x1b") {
				t.Errorf("the message %q has control characters", text)
			}
		}
		requested.Literal()
	})
}
