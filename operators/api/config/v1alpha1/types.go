// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
)

// ControllerConfiguration configures partition-controller.
//
// +kubebuilder:object:root=true
type ControllerConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Controller is the companion that this process runs, by its name. The flag --controller replaces it.
	Controller string `json:"controller,omitempty"`
	// Parts are what of the companion runs in this process. It defaults to all parts. The flag --parts
	// replaces them: whatever reaches the webhooks must find none of the controllers' rights there.
	Parts []Part `json:"parts,omitempty"`
	// Namespace is where this process has its Lease, the Secret of its certificate and its Service.
	// In a pod, it defaults to the pod's.
	Namespace string `json:"namespace,omitempty"`
	// ClientConnection says how to reach kube-apiserver. Without a kubeconfig, a pod uses its
	// ServiceAccount, and any other process what kubectl would use.
	ClientConnection componentbaseconfig.ClientConnectionConfiguration `json:"clientConnection,omitempty"`
	// HostedConnection says how to reach the kube-apiserver of the hosted cluster, for companions that have one
	// besides this. They need its kubeconfig.
	HostedConnection componentbaseconfig.ClientConnectionConfiguration `json:"hostedConnection,omitempty"`
	// LeaderElection lets one of several replicas run the controllers. Webhooks run on all of them.
	LeaderElection componentbaseconfig.LeaderElectionConfiguration `json:"leaderElection,omitempty"`
	// Metrics are served with TLS, to those who may get the path /metrics.
	Metrics Endpoint `json:"metrics,omitempty"`
	// Health has the probes /healthz and /readyz, without TLS.
	Health Endpoint `json:"health,omitempty"`
	// Webhook is where kube-apiserver calls the webhooks.
	Webhook Endpoint `json:"webhook,omitempty"`
	// Certificates are those of the webhooks, metrics and actions.
	Certificates CertificatesConfiguration `json:"certificates,omitempty"`
	// TLS is how webhooks, metrics and actions are served.
	TLS TLSConfiguration `json:"tls,omitempty"`
	// ForeignManagerPeriod is the time between two looks for another manager of a companion's
	// objects. It defaults to one minute.
	ForeignManagerPeriod metav1.Duration `json:"foreignManagerPeriod,omitempty"`
	// GracefulShutdownTimeout is how long requests and reconciliations that have begun may take to
	// end. It defaults to 20 seconds: a pod is killed 30 seconds after it was told to end.
	GracefulShutdownTimeout metav1.Duration `json:"gracefulShutdownTimeout,omitempty"`

	// Settings are the companion's own. It has their type, their defaults and their checks.
	Settings runtime.RawExtension `json:"settings,omitempty"`
}

// Part is a part of a companion.
type Part string

const (
	// Controllers run on the replica that leads. They also keep the certificate, if it is Generated.
	Controllers Part = "controllers"
	// Webhooks run on all replicas, and actions with them.
	Webhooks Part = "webhooks"
)

// Runs reports whether a part runs in this process.
func (c *ControllerConfiguration) Runs(part Part) bool { return slices.Contains(c.Parts, part) }

// Endpoint is an address to listen on.
type Endpoint struct {
	// BindAddress is host:port. Without a host, it is every address of this host. The value 0
	// switches metrics, or an endpoint of a companion, off, and no other endpoint can be.
	BindAddress string `json:"bindAddress,omitempty"`
}

// TLSConfiguration is how connections are made. The names are those of Kubernetes' own components
// (k8s.io/component-base/cli/flag).
type TLSConfiguration struct {
	// MinVersion is the least version: VersionTLS12 or VersionTLS13. It defaults to VersionTLS12.
	MinVersion string `json:"minVersion,omitempty"`
	// CipherSuites are those of TLS 1.2, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256. It defaults to those of
	// Go. Insecure ones are refused, and TLS 1.3 has ciphers that nobody chooses.
	CipherSuites []string `json:"cipherSuites,omitempty"`
}

// CertificateSource says who makes certificates.
type CertificateSource string

const (
	// CertificatesGenerated: the controllers. They keep them in a Secret that all replicas share, and
	// write their CAs into the webhook configurations. It is the default.
	CertificatesGenerated CertificateSource = "Generated"
	// CertificatesFromFiles: somebody else, such as cert-manager, who also writes the CA into the
	// webhook configurations. This process reads files, and reads them again when they change.
	CertificatesFromFiles CertificateSource = "Files"
)

// CertificatesConfiguration says where these certificates come from.
type CertificatesConfiguration struct {
	Source CertificateSource `json:"source,omitempty"`
	// Directory has the files tls.crt and tls.key: for Files, and for a process that runs webhooks and no
	// controllers, to which the Secret is a volume. It defaults to /etc/partition-controller-certificate.
	Directory string `json:"directory,omitempty"`

	// What follows is for Generated alone.

	// SecretName is the Secret with the certificate. It must exist, empty at first: so no process
	// needs the right to create Secrets. It defaults to webhook-certificate.
	SecretName string `json:"secretName,omitempty"`
	// ServiceName is the Service by which kube-apiserver reaches the webhooks. It defaults to
	// partition-webhooks.
	ServiceName string `json:"serviceName,omitempty"`
	// Names are further DNS names and IP addresses that the certificate is for.
	Names []string `json:"names,omitempty"`
	// MutatingWebhookConfiguration and ValidatingWebhookConfiguration are the objects that get the
	// CAs. Empty means that there is none of that kind.
	MutatingWebhookConfiguration   string `json:"mutatingWebhookConfiguration,omitempty"`
	ValidatingWebhookConfiguration string `json:"validatingWebhookConfiguration,omitempty"`
	// Validity is how long a certificate and its CA are valid. It defaults to 2160h, 90 days.
	Validity metav1.Duration `json:"validity,omitempty"`
	// RenewBefore is how long before its end a certificate is replaced. It defaults to 720h, 30
	// days.
	RenewBefore metav1.Duration `json:"renewBefore,omitempty"`
	// Overlap is how long both CAs are in the webhook configurations before, and again after, the
	// new certificate is served. All kube-apiservers and replicas must see a change within it. It
	// defaults to ten minutes.
	Overlap metav1.Duration `json:"overlap,omitempty"`
}
