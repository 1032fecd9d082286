// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
	"workload.openshift.io/kubernetes/node/topology"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// Configz says where the configuration of the running kubelet can be read, and with which rights.
type Configz struct {
	// URL is that of the kubelet's /configz; empty means that it is not asked.
	URL string
	// TokenFile has a token with the right to get nodes/configz, and CAFile the certificates
	// that sign the kubelet's.
	TokenFile, CAFile string
}

// Observe returns what is in force on the host, how its kubelet would start again, and what would be
// refused. It changes nothing, and does not look at the kubelet's health. From a pod it runs no command of
// the host's, not even with the driver command. The error is about what is missing in the observation.
func (h *Host) Observe(ctx context.Context, driverName operation.Driver, configz Configz) (operation.Observation, error) {
	observed := operation.Observation{Refused: map[operation.Policy]operation.Refusals{}}
	var errs []error
	j, unreadable := load(h.disk)
	if unreadable != nil {
		// A switch would wait forever for a result that this journal cannot give.
		errs = append(errs, unreadable)
	} else if j != nil {
		observed.Operation, observed.Step, observed.Result = j.Request.ID, string(j.Step), j.Result
	}
	looking := h.host
	looking.looks = h.chroot
	driver, err := looking.driver(ctx, driverName, nil)
	if err != nil {
		for _, policy := range operation.Policies() {
			observed.Refused[policy] = refusalsOf(errors.Join(unreadable, err))
		}
		return observed, errors.Join(append(errs, err)...)
	}
	defer driver.close()
	k, err := driver.kubelet(ctx)
	if err == nil {
		observed.Kubelet, err = h.observe(k)
	}
	errs = append(errs, err)
	for _, policy := range operation.Policies() {
		plan, err := driver.plan(ctx, policy)
		if refusals := refusalsOf(errors.Join(unreadable, err)); refusals != nil {
			observed.Refused[policy] = refusals
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

// observe returns how a kubelet would start again. The error is about what is missing; without its
// settings there is no kubelet.
func (h host) observe(k *kubelet) (*operation.Kubelet, error) {
	amount, err := reservedAmount(k.flags, k.config)
	if err != nil {
		return nil, err
	}
	reserved, err := cpuset.Parse(reservedCPUs(k.flags, k.config))
	if err != nil {
		return nil, fmt.Errorf("the kubelet's reservedSystemCPUs: %w", err)
	}
	online, err := h.online()
	if err != nil {
		return nil, err
	}
	pools, err := h.pools(online)
	if err != nil {
		return nil, err
	}
	observed := &operation.Kubelet{
		CPUManagerPolicyOptions:      over(k.flags.options, k.config.CPUManagerPolicyOptions),
		Reserved:                     amount,
		ReservedCPUs:                 reserved.Union(pools.Union()).String(),
		TopologyManagerPolicy:        cmp.Or(k.flags.topologyPolicy, k.config.TopologyManagerPolicy),
		TopologyManagerScope:         cmp.Or(k.flags.topologyScope, k.config.TopologyManagerScope),
		TopologyManagerPolicyOptions: over(k.flags.topologyOptions, k.config.TopologyManagerPolicyOptions),
		MemoryManagerPolicy:          cmp.Or(k.flags.memoryPolicy, k.config.MemoryManagerPolicy),
	}
	observed.Places, err = h.places()
	return observed, err
}

// places returns where the online CPUs are, in the order of their lowest CPU.
func (h host) places() ([]operation.Place, error) {
	t, err := topology.Read(h.disk.at(topology.Sysfs))
	if err != nil {
		return nil, fmt.Errorf("topology of the host: %w", err)
	}
	var places []operation.Place
	for _, core := range t.Cores {
		i := slices.IndexFunc(places, func(p operation.Place) bool { return p.Socket == core.Package && p.NUMANode == core.Node })
		if i < 0 {
			i = len(places)
			places = append(places, operation.Place{Socket: core.Package, NUMANode: core.Node})
		}
		places[i].Cores = append(places[i].Cores, core.CPUs.String())
	}
	return places, nil
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
