// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"workload.openshift.io/operators/e2e/browser"
	"workload.openshift.io/operators/e2e/internal/rig"
)

// A person on this host switches the node's policy in a browser, with what kubectl partition console opens.
func inBrowser(t *testing.T, s *site) {
	n := s.first()
	pages := n.openConsole(t)
	b := browser.Start(t, chromium, 2*time.Minute)
	await := func(parts ...string) {
		t.Helper()
		n.WaitFor(t, n.SwitchLimit, "the console shows it", func() error {
			b.Open(pages + "hosts")
			row := b.Row(n.Name)
			for _, part := range parts {
				if !strings.Contains(row, part) {
					return fmt.Errorf("the row of the node is %q, want %q in it, on a page that says %q", row, part, b.Text())
				}
			}
			return nil
		})
	}

	await("Enable CPU Manager", "false")
	b.Press("Enable CPU Manager on " + n.Name)
	await("static: complete", "Disable CPU Manager", "true")
	n.InForce(t, "static")
	exclusive := n.StartPod(t, rig.Pod("exclusive", nil, "cpu=2 memory=32Mi", "cpu=2 memory=32Mi"))
	b.Press("Disable CPU Manager on " + n.Name)
	if alert := b.Alert(); !strings.Contains(alert, rig.PodNamespace+"/exclusive") {
		t.Errorf("a refusal says %q, want the pod in it", alert)
	}
	n.RemovePod(t, exclusive.Name)
	await("static: complete", "Disable CPU Manager")
	b.Press("Disable CPU Manager on " + n.Name)
	await("none: complete", "Enable CPU Manager", "false")
	n.InForce(t, "none")
}

// openConsole runs kubectl partition console until the test ends, and returns the URL that its pages are below.
func (n *node) openConsole(t *testing.T) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), plugin, "console", "--kubeconfig="+n.Kubeconfig)
	var stderr strings.Builder
	command.Stderr = &stderr
	output, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Wait() }) // the end of the test's context has killed it
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if url, found := strings.CutPrefix(lines.Text(), "Console:"); found {
			return strings.TrimSuffix(strings.TrimSpace(url), "hosts")
		}
	}
	t.Fatalf("kubectl partition console prints no URL: %s", stderr.String())
	return ""
}
