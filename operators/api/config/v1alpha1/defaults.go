// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
)

// leases is the only lock that client-go still has
// (k8s.io/client-go/tools/leaderelection/resourcelock, LeasesResourceLock).
const leases = "leases"

// SetDefaults fills in what a configuration leaves out.
func SetDefaults(c *ControllerConfiguration) {
	componentbaseconfig.RecommendedDefaultClientConnectionConfiguration(&c.ClientConnection)
	componentbaseconfig.RecommendedDefaultClientConnectionConfiguration(&c.HostedConnection)
	DefaultText(&c.LeaderElection.ResourceLock, leases)
	DefaultText(&c.LeaderElection.ResourceName, "partition-controller")
	DefaultText(&c.LeaderElection.ResourceNamespace, c.Namespace)
	componentbaseconfig.RecommendedDefaultLeaderElectionConfiguration(&c.LeaderElection)
	DefaultText(&c.Metrics.BindAddress, ":8443")
	DefaultText(&c.Health.BindAddress, ":8081")
	DefaultText(&c.Webhook.BindAddress, ":9443")
	DefaultDuration(&c.ForeignManagerPeriod, time.Minute)
	DefaultDuration(&c.GracefulShutdownTimeout, 20*time.Second)

	if len(c.Parts) == 0 {
		c.Parts = []Part{Controllers, Webhooks}
	}

	DefaultText(&c.TLS.MinVersion, "VersionTLS12")

	certificates := &c.Certificates
	DefaultText(&certificates.Directory, "/etc/partition-controller-certificate")
	certificates.Source = cmp.Or(certificates.Source, CertificatesGenerated)
	if certificates.Source == CertificatesGenerated {
		DefaultText(&certificates.SecretName, "webhook-certificate")
		DefaultText(&certificates.ServiceName, "partition-webhooks")
		DefaultDuration(&certificates.Validity, 90*24*time.Hour)
		DefaultDuration(&certificates.RenewBefore, 30*24*time.Hour)
		DefaultDuration(&certificates.Overlap, 10*time.Minute)
	}
}

// DefaultText sets an empty text to its default.
func DefaultText(value *string, fallback string) {
	*value = cmp.Or(*value, fallback)
}

// DefaultDuration sets a duration of zero to its default.
func DefaultDuration(value *metav1.Duration, fallback time.Duration) {
	value.Duration = cmp.Or(value.Duration, fallback)
}
