// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
)

// Settings are what an administrator chooses for tuning.
type Settings struct {
	// ControlPlaneNamespace is that of the hosted cluster. It defaults to the process' own.
	ControlPlaneNamespace string `json:"controlPlaneNamespace,omitempty"`
	// OperandImage is the image of the operand, with its registry or its digest.
	OperandImage string `json:"operandImage,omitempty"`
	// Patience is how long Tuneds stay in the hosted cluster whose ConfigMap has gone. It defaults to ten seconds.
	Patience metav1.Duration `json:"patience,omitempty"`
	// Resync is the time between two looks at everything, whatever was told meanwhile. It defaults to ten minutes.
	Resync metav1.Duration `json:"resync,omitempty"`
	// PodPeriod is the time between two looks at the pods of nodes, where a Tuned goes by these. It defaults to 30 seconds.
	PodPeriod metav1.Duration `json:"podPeriod,omitempty"`
}

// hyperShift is the environment variable that says true in a control-plane namespace (cmd/cluster-node-tuning-operator of the Node
// Tuning Operator). Here the configuration says it, by hostedConnection.
const hyperShift = "HYPERSHIFT"

// Default implements companion.Settings.
func (s *Settings) Default() {
	configv1alpha1.DefaultDuration(&s.Patience, 10*time.Second)
	configv1alpha1.DefaultDuration(&s.Resync, 10*time.Minute)
	configv1alpha1.DefaultDuration(&s.PodPeriod, 30*time.Second)
}

// Validate implements companion.Settings.
func (s *Settings) Validate(path *field.Path, config *configv1alpha1.ControllerConfiguration) (errs field.ErrorList) {
	errs = append(errs, configv1alpha1.ValidatePositive(path, map[string]metav1.Duration{"patience": s.Patience, "resync": s.Resync, "podPeriod": s.PodPeriod})...)
	configv1alpha1.DefaultText(&s.ControlPlaneNamespace, config.Namespace)
	if hosted := config.HostedConnection.Kubeconfig != ""; os.Getenv(hyperShift) == "true" && !hosted {
		errs = append(errs, field.Required(field.NewPath("hostedConnection", "kubeconfig"), hyperShift+"=true, so the nodes are in a hosted cluster"))
	}
	errs = append(errs, configv1alpha1.ValidateLabel(path.Child("controlPlaneNamespace"), s.ControlPlaneNamespace)...)
	if config.Runs(configv1alpha1.Controllers) {
		errs = append(errs, configv1alpha1.ValidateImage(path.Child("operandImage"), s.OperandImage)...)
	}
	return errs
}
