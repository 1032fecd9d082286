// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"strings"
	"testing"
	"time"
)

func TestParseExporterConfiguration(t *testing.T) {
	for name, test := range map[string]struct {
		data string
		look time.Duration
		err  string
	}{
		"what is missing has its default":         {"{}", time.Second, ""},
		"once in a period":                        {"infoRefreshMode: Periodic\ninfoRefreshPeriod: 30s\n", 30 * time.Second, ""},
		"on events the period is of no account":   {"infoRefreshMode: Events\ninfoRefreshPeriod: 30s\n", time.Second, ""},
		"no content":                              {" \n", 0, "it is empty"},
		"a policy is the kubelet's to say":        {"topologyManagerPolicy: restricted", 0, "topologyManagerPolicy"},
		"a mode that does not exist":              {"infoRefreshMode: Never", 0, `infoRefreshMode: Unsupported value: "Never"`},
		"a period that is too short":              {"infoRefreshPeriod: 10ms", 0, `infoRefreshPeriod: Invalid value: "10ms": must be at least one second`},
		"a heartbeat that is too slow":            {"heartbeatPeriod: 6m", 0, `heartbeatPeriod: Invalid value: "6m0s": must be between one second and 5m0s`},
		"a fingerprint that does not exist":       {"podsFingerprinting: Some", 0, `podsFingerprinting: Unsupported value: "Some"`},
		"more than anybody would write":           {strings.Repeat("#", 65<<10), 0, "at most 65536 are read"},
		"a period that is no duration is refused": {"infoRefreshPeriod: soon", 0, "soon"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseExporterConfiguration([]byte(test.data))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("the error is %v, want %q", err, test.err)
				}
				return
			}
			if err != nil || c.LookPeriod() != test.look {
				t.Fatalf("got %+v, %v; want a look each %s", c, err, test.look)
			}
			if again, err := ParseExporterConfiguration([]byte(c.String())); err != nil || again != c {
				t.Errorf("%q is read as %+v, %v; want %+v", c.String(), again, err, c)
			}
		})
	}
}

func TestIsStale(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"written just now":                  {map[string]string{HeartbeatAnnotation: "2026-11-28T12:00:00Z"}, false},
		"written a quarter of an hour ago":  {map[string]string{HeartbeatAnnotation: "2026-11-28T11:45:00Z"}, false},
		"written longer ago":                {map[string]string{HeartbeatAnnotation: "2026-11-28T11:44:59Z"}, true},
		"written by a clock that is ahead":  {map[string]string{HeartbeatAnnotation: "2026-11-28T12:03:00Z"}, false},
		"written by another exporter":       {nil, true},
		"written at a time that is no time": {map[string]string{HeartbeatAnnotation: "noon"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsStale(test.annotations, now); got != test.want {
				t.Errorf("it is stale: %t", got)
			}
		})
	}
}
