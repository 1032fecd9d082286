// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const header = "apiVersion: config.workload.openshift.io/v1alpha1\nkind: ControllerConfiguration\n"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAConfigurationThatChoosesNothingIsValidInAPod(t *testing.T) {
	for name, path := range map[string]string{"no file": "", "a header": write(t, header), "a header after a comment": write(t, "# ours\n---\n"+header)} {
		t.Run(name, func(t *testing.T) {
			config, err := Read(path, "partition-cpupolicy")
			if err != nil {
				t.Fatal(err)
			}
			if config.Namespace != "partition-cpupolicy" || config.LeaderElection.ResourceNamespace != "partition-cpupolicy" {
				t.Errorf("the namespace is %q, that of the Lease %q", config.Namespace, config.LeaderElection.ResourceNamespace)
			}
			if !*config.LeaderElection.LeaderElect || config.LeaderElection.ResourceLock != "leases" {
				t.Errorf("leader election is %+v", config.LeaderElection)
			}
		})
	}
}

func TestAConfigurationChoosesEveryDuration(t *testing.T) {
	config, err := Read(write(t, header+`
namespace: mine
controller: cpupolicy
leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
certificates: {validity: 9s, renewBefore: 5s, overlap: 1s, names: [127.0.0.1, localhost]}
foreignManagerPeriod: 100ms
gracefulShutdownTimeout: 1s
`), "that of the pod")
	if err != nil {
		t.Fatal(err)
	}
	if config.Namespace != "mine" || config.LeaderElection.LeaseDuration.Duration != 3*time.Second ||
		config.Certificates.Overlap.Duration != time.Second || config.ForeignManagerPeriod.Duration != 100*time.Millisecond {
		t.Errorf("the configuration is %+v", config)
	}
}

func TestMetricsCanBeSwitchedOff(t *testing.T) {
	config, err := Read(write(t, header+`
metrics: {bindAddress: "0"}
`), "ns")
	if err != nil {
		t.Fatal(err)
	}
	if config.Metrics.BindAddress != "0" {
		t.Errorf("the configuration is %+v", config)
	}
}

func TestWhatIsWrongWithAConfiguration(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		// want are parts of the error: the field, the value, and what to do.
		want []string
	}{
		"no kind":                             {"controller: a\n", []string{"Kind"}},
		"another kind":                        {"apiVersion: config.workload.openshift.io/v1alpha1\nkind: Something\n", []string{"Something"}},
		"another version":                     {"apiVersion: config.workload.openshift.io/v9\nkind: ControllerConfiguration\n", []string{"v9"}},
		"an unknown field":                    {header + "controler: [cpupolicy]\n", []string{`"controler"`}},
		"a field twice":                       {header + "namespace: a\nnamespace: b\n", []string{"namespace"}},
		"a duration without a unit":           {header + "foreignManagerPeriod: 5\n", []string{"foreignManagerPeriod"}},
		"a wrong duration":                    {header + "foreignManagerPeriod: 5 minutes\n", []string{"foreignManagerPeriod", "5 minutes"}},
		"two documents":                       {header + "---\n" + header, []string{"more than one YAML document"}},
		"no port":                             {header + "metrics: {bindAddress: 10.0.0.1}\n", []string{"metrics.bindAddress", "10.0.0.1", "host:port"}},
		"a port that does not exist":          {header + `health: {bindAddress: ":65536"}`, []string{"health.bindAddress", ":65536", "1 to 65535"}},
		"webhooks switched off":               {header + `webhook: {bindAddress: "0"}`, []string{"webhook.bindAddress", "host:port"}},
		"a namespace with a capital letter":   {header + "namespace: Mine\n", []string{"namespace", "Mine"}},
		"a lease shorter than its renewal":    {header + "leaderElection: {leaseDuration: 5s}\n", []string{"leaderElection.leaseDuration", "5s", "renewDeadline", "10s"}},
		"a renewal as short as its retry":     {header + "leaderElection: {retryPeriod: 9s}\n", []string{"leaderElection.renewDeadline", "10s", "retryPeriod", "9s"}},
		"a lock that client-go no longer has": {header + "leaderElection: {resourceLock: endpoints}\n", []string{"leaderElection.resourceLock", "endpoints", "leases"}},
		"a negative burst":                    {header + "clientConnection: {burst: -1}\n", []string{"clientConnection.burst", "-1"}},
		"an unknown source of certificates":   {header + "certificates: {source: Vault}\n", []string{"certificates.source", "Vault", "Files"}},
		"a version of TLS that is too old":    {header + "tls: {minVersion: VersionTLS11}\n", []string{"tls.minVersion", "VersionTLS11", "VersionTLS12"}},
		"an insecure cipher":                  {header + "tls: {cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_RSA_WITH_RC4_128_SHA]}\n", []string{"tls.cipherSuites[1]", "TLS_RSA_WITH_RC4_128_SHA"}},
		"ciphers without that of HTTP/2":      {header + "tls: {cipherSuites: [TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]}\n", []string{"tls.cipherSuites", "HTTP/2", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}},
		"ciphers of TLS 1.3":                  {header + "tls: {minVersion: VersionTLS13, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}\n", []string{"tls.cipherSuites", "VersionTLS12"}},
		"a part that is none":                 {header + "parts: [webhooks, console]\n", []string{"parts[1]", "console", "controllers"}},
		"files and a Secret":                  {header + "certificates: {source: Files, directory: /etc/c, secretName: s}\n", []string{"certificates.secretName", "Generated"}},
		"files and a webhook configuration":   {header + "certificates: {source: Files, directory: /etc/c, mutatingWebhookConfiguration: s}\n", []string{"certificates.mutatingWebhookConfiguration"}},
		"a name that is no name":              {header + "certificates: {names: [Me]}\n", []string{"certificates.names[0]", "Me"}},
		"a certificate that is always old":    {header + "certificates: {validity: 24h}\n", []string{"certificates.validity", "24h0m0s", "renewBefore", "720h0m0s"}},
		"an overlap that does not fit":        {header + "certificates: {overlap: 360h}\n", []string{"certificates.renewBefore", "720h0m0s", "overlap", "360h0m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, test.text)
			_, err := Read(path, "ns")
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, want := range append(test.want, path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not name %q: %v", want, err)
				}
			}
		})
	}
}

func TestOutsideOfAPodTheNamespaceIsRequired(t *testing.T) {
	_, err := Read("", "")
	if err == nil || !strings.Contains(err.Error(), "namespace: Required") {
		t.Errorf("the error is %v", err)
	}
}
