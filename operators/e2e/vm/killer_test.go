// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"workload.openshift.io/operators/e2e/internal/rig"
)

// asKiller, as first argument, makes the test binary a program that kills, in a VM: the second one is a
// step of the executor.
const asKiller = "kill-at"

// killAt kills the host unit as soon as the journal names a step, and returns the exit code. Between two
// steps are milliseconds, in which no shell could look.
func killAt(step string) int {
	const kill = "/sys/fs/cgroup/system.slice/partition-agent-cpu-policy.service/cgroup.kill"
	for begin := time.Now(); time.Since(begin) < 3*time.Minute; {
		if journalStep() != step {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		// systemd may be about to start it again.
		if err := os.WriteFile(kill, []byte("1"), 0); err == nil {
			fmt.Printf("killed at step %s; the journal has %s\n", step, journalStep())
			return 0
		}
	}
	fmt.Fprintf(os.Stderr, "there was no step %s in three minutes; it is %q\n", step, journalStep())
	return 1
}

// journalStep returns the step in the journal, and nothing if it has none.
func journalStep() string {
	var journal struct{ Step string }
	data, err := os.ReadFile(rig.AgentDirectory + "/journal.json")
	if err != nil || json.Unmarshal(data, &journal) != nil {
		return ""
	}
	return journal.Step
}
