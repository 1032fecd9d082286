// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"path"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
)

// Settings are what an administrator chooses for numaresources.
type Settings struct {
	// ExporterNamespace is where the exporters run. It defaults to partition-numaresources-exporter.
	ExporterNamespace string `json:"exporterNamespace,omitempty"`
	// ExporterImage is the image of partition-node, with its registry or its digest.
	ExporterImage string `json:"exporterImage,omitempty"`
	// SchedulerNamespace is where the scheduler runs. It defaults to partition-numaresources-scheduler.
	SchedulerNamespace string `json:"schedulerNamespace,omitempty"`
	// SchedulerImage is the image of topo-aware-scheduler, with its registry or its digest. Without it there is no scheduler.
	SchedulerImage string `json:"schedulerImage,omitempty"`
	// PodResources is the directory on nodes that has the kubelet's socket kubelet.sock of podresources. It defaults to
	// /var/lib/kubelet/pod-resources.
	PodResources string `json:"podResources,omitempty"`
	// KubeletPort is the port on which kubelets serve. It defaults to 10250.
	KubeletPort int32 `json:"kubeletPort,omitempty"`
	// KubeletCA is a ConfigMap of the exporters' namespace whose key ca-bundle.crt has the CAs of kubelets' serving
	// certificates. Without it, the cluster's CA is what they are verified with.
	KubeletCA string `json:"kubeletCA,omitempty"`
	// KubeletCertificate is a file on nodes with the kubelet's own serving certificate, for kubelets that sign it themselves, such
	// as kubeadm's: /var/lib/kubelet/pki/kubelet.crt. Each node of all groups must have it, and it must hold no key.
	KubeletCertificate string `json:"kubeletCertificate,omitempty"`
	// Period is how often everything is compared although nothing was heard of. It defaults to one minute.
	Period metav1.Duration `json:"period,omitempty"`
}

// Default implements companion.Settings.
func (s *Settings) Default() {
	configv1alpha1.DefaultText(&s.ExporterNamespace, "partition-numaresources-exporter")
	configv1alpha1.DefaultText(&s.SchedulerNamespace, "partition-numaresources-scheduler")
	configv1alpha1.DefaultText(&s.PodResources, "/var/lib/kubelet/pod-resources")
	s.KubeletPort = cmp.Or(s.KubeletPort, 10250)
	configv1alpha1.DefaultDuration(&s.Period, time.Minute)
}

// Validate implements companion.Settings.
func (s *Settings) Validate(at *field.Path, config *configv1alpha1.ControllerConfiguration) (errs field.ErrorList) {
	errs = append(errs, configv1alpha1.ValidateLabel(at.Child("exporterNamespace"), s.ExporterNamespace)...)
	errs = append(errs, configv1alpha1.ValidateLabel(at.Child("schedulerNamespace"), s.SchedulerNamespace)...)
	if s.SchedulerImage != "" {
		errs = append(errs, configv1alpha1.ValidateImage(at.Child("schedulerImage"), s.SchedulerImage)...)
	}
	errs = append(errs, configv1alpha1.ValidatePositive(at, map[string]metav1.Duration{"period": s.Period})...)
	for name, value := range map[string]string{"podResources": s.PodResources, "kubeletCertificate": s.KubeletCertificate} {
		if value != "" && (!path.IsAbs(value) || path.Clean(value) != value || value == "/") {
			errs = append(errs, field.Invalid(at.Child(name), value, "must be a clean, absolute path"))
		}
	}
	if s.KubeletPort < 1 || s.KubeletPort > 65535 {
		errs = append(errs, field.Invalid(at.Child("kubeletPort"), s.KubeletPort, "must be between 1 and 65535"))
	}
	if s.KubeletCA != "" {
		errs = append(errs, configv1alpha1.ValidateLabel(at.Child("kubeletCA"), s.KubeletCA)...)
	}
	if config.Runs(configv1alpha1.Controllers) {
		errs = append(errs, configv1alpha1.ValidateImage(at.Child("exporterImage"), s.ExporterImage)...)
	}
	return errs
}

// soon is how long to wait for what may change again in a moment.
func (s *Settings) soon() time.Duration { return min(s.Period.Duration, 5*time.Second) }

func (s *Settings) port() string { return fmt.Sprint(s.KubeletPort) }
