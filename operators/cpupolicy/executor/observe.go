/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package executor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/kubelet/config/v1beta1"
	"workload.openshift.io/operators/cpupolicy/operation"
)

// Configz says where the configuration of the running kubelet can be had, and with which rights.
type Configz struct {
	// URL is that of the kubelet's /configz; empty means that it is not asked.
	URL string
	// TokenFile has a token with the right to get nodes/configz, and CAFile the certificates
	// that sign the kubelet's.
	TokenFile, CAFile string
}

// Observe returns what is in force on the host, and what would be refused. It changes nothing, and
// does not look at the kubelet's health. The error is about what is missing in the observation.
func (h *Host) Observe(ctx context.Context, driverName operation.Driver, configz Configz) (operation.Observation, error) {
	observed := operation.Observation{Refused: map[operation.Policy]string{}}
	var errs []error
	if j, err := load(h.disk); err != nil {
		errs = append(errs, err)
	} else if j != nil {
		observed.Operation, observed.Step, observed.Result = j.Request.ID, string(j.Step), j.Result
	}
	driver, err := h.driver(ctx, driverName, nil)
	if err != nil {
		return observed, errors.Join(append(errs, err)...)
	}
	defer driver.close()
	for _, policy := range operation.Policies() {
		plan, err := driver.plan(ctx, policy)
		if err != nil {
			observed.Refused[policy] = err.Error()
		}
		if plan == nil {
			continue
		}
		if checkpoint, err := readCheckpoint(h.disk, plan.Checkpoint); err == nil && checkpoint != nil {
			observed.Policy = operation.Policy(checkpoint.Policy)
		}
	}
	if configz.URL != "" {
		if observed.Configured, err = configz.ask(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return observed, errors.Join(errs...)
}

// ask returns the policy of the kubelet's configuration.
func (c Configz) ask(ctx context.Context) (operation.Policy, error) {
	policy, err := c.get(ctx)
	if err != nil {
		return "", fmt.Errorf("kubelet's configuration: %w", err)
	}
	return policy, nil
}

func (c Configz) get(ctx context.Context) (operation.Policy, error) {
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", err
	}
	authorities, err := os.ReadFile(c.CAFile)
	if err != nil {
		return "", err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return "", fmt.Errorf("%s: has no certificate", c.CAFile)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", c.URL, response.Status)
	}
	var answer struct {
		Config *v1beta1.KubeletConfiguration `json:"kubeletconfig"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", fmt.Errorf("%s: %w", c.URL, err)
	}
	if answer.Config == nil {
		return "", fmt.Errorf("%s: the answer has no kubeletconfig", c.URL)
	}
	return operation.Policy(answer.Config.CPUManagerPolicy), nil
}
