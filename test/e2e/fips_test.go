// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"debug/buildinfo"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A program in FIPS mode takes part in no key exchange that is not approved, and X25519 on its own is none
// (crypto/tls/defaults_fips140.go in Go). No flag and no file of a component says which it takes.
func TestProgramsAreInFIPSModeIfTheyWereBuiltForIt(t *testing.T) {
	in(t, core)
	c := partitioned(t)
	for name, port := range map[string]int{"kube-apiserver": c.Config.Ports.APIServer, "kubelet": 10250} {
		t.Run(name, func(t *testing.T) {
			info, err := buildinfo.ReadFile(filepath.Join(c.Config.Bin, name))
			if err != nil {
				t.Fatal(err)
			}
			var module string
			for _, setting := range info.Settings {
				if setting.Key == "GOFIPS140" {
					module = setting.Value
				}
			}
			if strings.HasPrefix(module, "v") != fips {
				t.Errorf("it was built with GOFIPS140=%q, and FIPS mode is wanted: %t", module, fips)
			}
			exchange := func(curve tls.CurveID) error {
				// The kubelet's certificate is one that it has signed itself; whether it is trusted does not matter here.
				config := &tls.Config{CurvePreferences: []tls.CurveID{curve}, InsecureSkipVerify: true}
				dialer := &net.Dialer{Timeout: 10 * time.Second}
				connection, err := tls.DialWithDialer(dialer, "tcp", net.JoinHostPort(c.Config.Node.Address, strconv.Itoa(port)), config)
				if err != nil {
					return err
				}
				return connection.Close()
			}
			if err := exchange(tls.CurveP256); err != nil {
				t.Errorf("with P-256, which is approved: %v", err)
			}
			switch err := exchange(tls.X25519); {
			case !fips && err != nil:
				t.Errorf("with X25519, and not in FIPS mode: %v", err)
			case fips && (err == nil || !strings.Contains(err.Error(), "handshake failure")):
				t.Errorf("with X25519, in FIPS mode: %v, want a handshake failure", err)
			}
		})
	}
}
