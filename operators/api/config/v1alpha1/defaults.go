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

package v1alpha1

import (
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
	text(&c.LeaderElection.ResourceLock, leases)
	text(&c.LeaderElection.ResourceName, "partition-controller")
	text(&c.LeaderElection.ResourceNamespace, c.Namespace)
	componentbaseconfig.RecommendedDefaultLeaderElectionConfiguration(&c.LeaderElection)
	text(&c.Metrics.BindAddress, ":8443")
	text(&c.Health.BindAddress, ":8081")
	text(&c.Webhook.BindAddress, ":9443")
	duration(&c.ForeignManagerPeriod, time.Minute)
	duration(&c.GracefulShutdownTimeout, 20*time.Second)

	if len(c.Parts) == 0 {
		c.Parts = []Part{Controllers, Webhooks}
	}

	text(&c.TLS.MinVersion, "VersionTLS12")

	certificates := &c.Certificates
	text(&certificates.Directory, "/etc/partition-controller-certificate")
	if certificates.Source == "" {
		certificates.Source = CertificatesGenerated
	}
	if certificates.Source == CertificatesGenerated {
		text(&certificates.SecretName, "webhook-certificate")
		text(&certificates.ServiceName, "partition-webhooks")
		duration(&certificates.Validity, 90*24*time.Hour)
		duration(&certificates.RenewBefore, 30*24*time.Hour)
		duration(&certificates.Overlap, 10*time.Minute)
	}

	text(&c.CPUPolicy.AgentNamespace, "partition-cpupolicy-agent")
	text(&c.CPUPolicy.Driver, "kubelet")
	duration(&c.CPUPolicy.ObserveTimeout, 2*time.Minute)
	duration(&c.CPUPolicy.SwitchTimeout, 150*time.Second)
	duration(&c.CPUPolicy.OperationTimeout, time.Hour)
	duration(&c.CPUPolicy.LabelTimeout, 5*time.Minute)
	text(&c.CPUPolicy.Actions.BindAddress, ":8444")
}

func text(value *string, fallback string) {
	if *value == "" {
		*value = fallback
	}
}

func duration(value *metav1.Duration, fallback time.Duration) {
	if value.Duration == 0 {
		value.Duration = fallback
	}
}
