// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"strings"
	"testing"
)

// setProxy has a test's environment be as given, and otherwise without a proxy.
func setProxy(t *testing.T, environment map[string]string) {
	t.Helper()
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"} {
		t.Setenv(name, environment[name])
	}
}

func TestNoProxyHasWhatIsTheClusters(t *testing.T) {
	const own = "10.247.0.1,10.247.0.0/24,10.247.128.0/24,.svc"
	node := Config{Node: Node{Address: "10.248.0.2", PodNet: "10.247.2.0/24"}}
	for name, test := range map[string]struct {
		config      Config
		environment map[string]string
		want        string
	}{
		"there is no proxy":                   {Config{}, nil, ""},
		"there is no proxy, but an exception": {Config{}, map[string]string{"NO_PROXY": "example.com"}, ""},
		"there is a proxy":                    {Config{}, map[string]string{"HTTPS_PROXY": "http://proxy:3128"}, own},
		"its name is in lower case":           {Config{}, map[string]string{"https_proxy": "http://proxy:3128"}, own},
		"exceptions stay":                     {Config{}, map[string]string{"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "localhost,example.com"}, "localhost,example.com," + own},
		"so do those of the other name":       {Config{}, map[string]string{"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "example.com"}, "example.com," + own},
		"both names have some":                {Config{}, map[string]string{"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "a,b", "no_proxy": "b, c"}, "a,b,c," + own},
		"nothing is missing":                  {Config{}, map[string]string{"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": own + ",a", "no_proxy": own}, own + ",a"},
		"the node has another address":        {node, map[string]string{"HTTPS_PROXY": "http://proxy:3128"}, "10.248.0.2,10.247.2.0/24,10.247.128.0/24,.svc"},
		"another control plane is next to it": {second, map[string]string{"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": own}, own + ",10.249.1.1,10.249.1.0/24,10.249.129.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			setProxy(t, test.environment)
			if got := New(test.config).NoProxy(); got != test.want {
				t.Errorf("NO_PROXY is %q, want %q", got, test.want)
			}
		})
	}
}

// The first step of Up, and Attach without Up, must do so: later, net/http has read the environment.
func TestCommandsAndComponentsBypassTheProxy(t *testing.T) {
	for name, connect := range map[string]func(*Cluster) error{
		"Up":     func(c *Cluster) error { return c.steps()[0].run(t.Context()) },
		"Attach": (*Cluster).Attach,
	} {
		t.Run(name, func(t *testing.T) {
			setProxy(t, map[string]string{"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "example.com"})
			c := New(Config{Paths: Paths{Data: t.TempDir(), Run: t.TempDir()}})
			if err := c.writeCertificates(); err != nil {
				t.Fatal(err)
			}
			if err := connect(c); err != nil {
				t.Fatal(err)
			}
			want := "example.com,10.247.0.1,10.247.0.0/24,10.247.128.0/24,.svc"
			for _, variable := range []string{"NO_PROXY", "no_proxy"} {
				if got := os.Getenv(variable); got != want {
					t.Errorf("this process has the %s %q, want %q", variable, got, want)
				}
			}
			if err := os.Mkdir(c.data("logs"), 0o700); err != nil {
				t.Fatal(err)
			}
			component := c.component(program{name: "component", args: []string{"/bin/sh", "-c", "echo $NO_PROXY $no_proxy; exec sleep 100"}})
			t.Cleanup(func() {
				if err := component.Kill(); err != nil {
					t.Error(err)
				}
			})
			if err := component.Start(); err != nil {
				t.Fatal(err)
			}
			awaitLog(t, component)
			log, err := os.ReadFile(component.Log())
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(log)); got != want+" "+want {
				t.Errorf("a component has %q, want %q twice", got, want)
			}
		})
	}
}
