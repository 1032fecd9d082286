// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"strings"
	"testing"
)

func TestParseTopology(t *testing.T) {
	for text, want := range map[string]Topology{"4x1": {4, 1, 1}, "2x2x1": {2, 2, 1}, "2x2x2": DefaultTopology, "1x2": {1, 2, 1}} {
		if got, err := ParseTopology(text); err != nil || got != want {
			t.Errorf("%q is %v (%v), want %v", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"": "sockets x cores x threads", "8": "sockets x cores x threads", "2x2x2x2": "sockets x cores x threads",
		"2xa": `"a" is not a number`, "0x2": `"0" is not a number`, "2x-1": `"-1" is not a number`, "1x1": "has 1 CPUs", "8x8x2": "has 128 CPUs", "2x": `"" is not a number`,
	} {
		if got, err := ParseTopology(text); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), `"`+text+`"`) {
			t.Errorf("%q is %v (%v), want an error with the text and %q", text, got, err, says)
		}
	}
}

// Each NUMA node has its memory and its socket, and nothing is left over.
func TestTopologyArguments(t *testing.T) {
	got := strings.Join(Topology{Sockets: 2, Cores: 2, Threads: 2}.args(4097), " ")
	const want = "-smp 8,sockets=2,cores=2,threads=2 -m 4096M" +
		" -object memory-backend-ram,id=memory0,size=2048M -numa node,nodeid=0,memdev=memory0 -object memory-backend-ram,id=memory1,size=2048M -numa node,nodeid=1,memdev=memory1" +
		" -numa cpu,node-id=0,socket-id=0 -numa cpu,node-id=1,socket-id=1"
	if got != want {
		t.Errorf("the arguments are\n%s\nwant\n%s", got, want)
	}
}
