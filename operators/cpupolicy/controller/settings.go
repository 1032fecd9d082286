// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/cpupolicy/operation"
)

// Settings are what an administrator chooses for cpupolicy.
type Settings struct {
	// AgentNamespace is where the Jobs run that work on nodes. It defaults to
	// partition-cpupolicy-agent.
	AgentNamespace string `json:"agentNamespace,omitempty"`
	// AgentImage is the image of partition-agent, with its registry or its digest: it runs as root on nodes, and what
	// is found under a short name is the runtime's to say. The controllers of cpupolicy need it.
	AgentImage string `json:"agentImage,omitempty"`
	// Driver is how nodes run their kubelets: kubelet (a unit of systemd), rke2, or command (what the
	// configuration of the host says). It defaults to kubelet.
	Driver string `json:"driver,omitempty"`
	// ObserveTimeout is how long an agent may take to look at a node. It defaults to two minutes, and
	// may not be shorter than 5s.
	ObserveTimeout metav1.Duration `json:"observeTimeout,omitempty"`
	// SwitchTimeout is how long a kubelet may be down, from its stop until it is healthy or rolled
	// back. The host enforces it. It defaults to 150s, and may not be longer: pods with the default
	// tolerations are evicted after about 340. It may not be shorter than 30s.
	SwitchTimeout metav1.Duration `json:"switchTimeout,omitempty"`
	// OperationTimeout is how long a switch may take from request to report, with a drain. It
	// defaults to one hour.
	OperationTimeout metav1.Duration `json:"operationTimeout,omitempty"`
	// LabelTimeout is how long a switch waits, once it is verified, for the label cpumanager to
	// agree. It defaults to five minutes.
	LabelTimeout metav1.Duration `json:"labelTimeout,omitempty"`
	// Actions has the action endpoint, with TLS, on all replicas. It defaults to port 8444.
	Actions configv1alpha1.Endpoint `json:"actions,omitempty"`
}

// In less time no agent's pod starts, and no kubelet has been healthy for some seconds: every switch would be rolled back.
const (
	shortestObservation = 5 * time.Second
	shortestSwitch      = 30 * time.Second
)

// Default implements companion.Settings.
func (s *Settings) Default() {
	configv1alpha1.DefaultText(&s.AgentNamespace, "partition-cpupolicy-agent")
	configv1alpha1.DefaultText(&s.Driver, string(operation.DriverKubelet))
	configv1alpha1.DefaultDuration(&s.ObserveTimeout, 2*time.Minute)
	configv1alpha1.DefaultDuration(&s.SwitchTimeout, operation.MaxTotal)
	configv1alpha1.DefaultDuration(&s.OperationTimeout, time.Hour)
	configv1alpha1.DefaultDuration(&s.LabelTimeout, 5*time.Minute)
	configv1alpha1.DefaultText(&s.Actions.BindAddress, ":8444")
}

// Endpoints implements companion.Server.
func (s *Settings) Endpoints() []*configv1alpha1.Endpoint {
	return []*configv1alpha1.Endpoint{&s.Actions}
}

// Validate implements companion.Settings.
func (s *Settings) Validate(path *field.Path, config *configv1alpha1.ControllerConfiguration) (errs field.ErrorList) {
	errs = append(errs, configv1alpha1.ValidateLabel(path.Child("agentNamespace"), s.AgentNamespace)...)
	if driver, all := operation.Driver(s.Driver), operation.Drivers(); !slices.Contains(all, driver) {
		errs = append(errs, field.NotSupported(path.Child("driver"), driver, all))
	}
	errs = append(errs, configv1alpha1.ValidatePositive(path, map[string]metav1.Duration{
		"observeTimeout": s.ObserveTimeout, "switchTimeout": s.SwitchTimeout, "operationTimeout": s.OperationTimeout, "labelTimeout": s.LabelTimeout,
	})...)
	if s.ObserveTimeout.Duration > 0 && s.ObserveTimeout.Duration < shortestObservation {
		errs = append(errs, field.Invalid(path.Child("observeTimeout"), s.ObserveTimeout.Duration.String(),
			fmt.Sprintf("must not be shorter than %s", shortestObservation)))
	}
	if s.SwitchTimeout.Duration > 0 && s.SwitchTimeout.Duration < shortestSwitch {
		errs = append(errs, field.Invalid(path.Child("switchTimeout"), s.SwitchTimeout.Duration.String(),
			fmt.Sprintf("must not be shorter than %s: no kubelet is healthy again before", shortestSwitch)))
	}
	if s.SwitchTimeout.Duration > operation.MaxTotal {
		errs = append(errs, field.Invalid(path.Child("switchTimeout"), s.SwitchTimeout.Duration.String(),
			fmt.Sprintf("must not be longer than %s", operation.MaxTotal)))
	}
	if least := s.SwitchTimeout.Duration + s.LabelTimeout.Duration; s.OperationTimeout.Duration <= least {
		errs = append(errs, field.Invalid(path.Child("operationTimeout"), s.OperationTimeout.Duration.String(),
			fmt.Sprintf("must be longer than switchTimeout and labelTimeout together, which are %s", least)))
	}
	if config.Runs(configv1alpha1.Controllers) {
		errs = append(errs, configv1alpha1.ValidateImage(path.Child("agentImage"), s.AgentImage)...)
	}
	return append(errs, configv1alpha1.ValidateEndpoint(path.Child("actions"), s.Actions, true)...)
}
