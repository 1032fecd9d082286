// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
)

// Validate returns what is wrong with a configuration that has its defaults.
func Validate(c *ControllerConfiguration) (errs field.ErrorList) {
	for i, part := range c.Parts {
		if all := []Part{Controllers, Webhooks}; !slices.Contains(all, part) {
			errs = append(errs, field.NotSupported(field.NewPath("parts").Index(i), part, all))
		}
	}
	namespace := field.NewPath("namespace")
	if c.Namespace == "" {
		errs = append(errs, field.Required(namespace, "only in a pod is there a default"))
	} else {
		errs = append(errs, ValidateLabel(namespace, c.Namespace)...)
	}
	for name, burst := range map[string]int32{"clientConnection": c.ClientConnection.Burst, "hostedConnection": c.HostedConnection.Burst} {
		if burst < 0 {
			errs = append(errs, field.Invalid(field.NewPath(name, "burst"), burst, "must not be negative"))
		}
	}
	errs = append(errs, validateLeaderElection(c)...)
	errs = append(errs, ValidateEndpoint(field.NewPath("metrics"), c.Metrics, true)...)
	errs = append(errs, ValidateEndpoint(field.NewPath("health"), c.Health, false)...)
	errs = append(errs, ValidateEndpoint(field.NewPath("webhook"), c.Webhook, false)...)
	errs = append(errs, ValidatePositive(nil, map[string]metav1.Duration{"foreignManagerPeriod": c.ForeignManagerPeriod, "gracefulShutdownTimeout": c.GracefulShutdownTimeout})...)
	errs = append(errs, validateTLS(&c.TLS, field.NewPath("tls"))...)
	return append(errs, validateCertificates(&c.Certificates, field.NewPath("certificates"))...)
}

// validateLeaderElection wants what client-go wants of a leader (its NewLeaderElector), which
// names neither field nor value.
func validateLeaderElection(c *ControllerConfiguration) (errs field.ErrorList) {
	path, election := field.NewPath("leaderElection"), c.LeaderElection
	if !*election.LeaderElect {
		return nil
	}
	errs = append(errs, ValidatePositive(path, map[string]metav1.Duration{"retryPeriod": election.RetryPeriod})...)
	if election.LeaseDuration.Duration <= election.RenewDeadline.Duration {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), election.LeaseDuration.Duration.String(),
			fmt.Sprintf("must be longer than renewDeadline, which is %s", election.RenewDeadline.Duration)))
	}
	// client-go waits up to 1.2 times the period (JitterFactor).
	if 5*election.RenewDeadline.Duration <= 6*election.RetryPeriod.Duration {
		errs = append(errs, field.Invalid(path.Child("renewDeadline"), election.RenewDeadline.Duration.String(),
			fmt.Sprintf("must be longer than 1.2 times retryPeriod, which is %s", election.RetryPeriod.Duration)))
	}
	if election.ResourceLock != leases {
		errs = append(errs, field.NotSupported(path.Child("resourceLock"), election.ResourceLock, []string{leases}))
	}
	return append(errs, subdomain(path.Child("resourceName"), election.ResourceName)...)
}

func validateTLS(c *TLSConfiguration, path *field.Path) (errs field.ErrorList) {
	if all := []string{"VersionTLS12", "VersionTLS13"}; !slices.Contains(all, c.MinVersion) {
		errs = append(errs, field.NotSupported(path.Child("minVersion"), c.MinVersion, all))
	}
	for i, name := range c.CipherSuites {
		if all := cliflag.PreferredTLSCipherNames(); !slices.Contains(all, name) {
			errs = append(errs, field.NotSupported(path.Child("cipherSuites").Index(i), name, all))
		}
	}
	// RFC 7540, section 9.2.2, of HTTP/2.
	needed := []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
	if len(c.CipherSuites) > 0 && !slices.ContainsFunc(needed, func(name string) bool { return slices.Contains(c.CipherSuites, name) }) {
		errs = append(errs, field.Invalid(path.Child("cipherSuites"), c.CipherSuites, "must have "+strings.Join(needed, " or ")+", since HTTP/2 needs it"))
	}
	if len(c.CipherSuites) > 0 && c.MinVersion == "VersionTLS13" {
		errs = append(errs, field.Forbidden(path.Child("cipherSuites"), "the ciphers of TLS 1.3 are not a choice; remove it, or set minVersion to VersionTLS12"))
	}
	return errs
}

func validateCertificates(c *CertificatesConfiguration, path *field.Path) (errs field.ErrorList) {
	switch c.Source {
	case CertificatesFromFiles:
		for _, only := range []struct {
			name string
			set  bool
		}{
			{"secretName", c.SecretName != ""},
			{"serviceName", c.ServiceName != ""},
			{"names", len(c.Names) > 0},
			{"mutatingWebhookConfiguration", c.MutatingWebhookConfiguration != ""},
			{"validatingWebhookConfiguration", c.ValidatingWebhookConfiguration != ""},
			{"validity", c.Validity.Duration != 0},
			{"renewBefore", c.RenewBefore.Duration != 0},
			{"overlap", c.Overlap.Duration != 0},
		} {
			if only.set {
				errs = append(errs, field.Forbidden(path.Child(only.name), fmt.Sprintf("the program that writes the files decides it; remove it, or set source to %s", CertificatesGenerated)))
			}
		}
		return errs
	case CertificatesGenerated:
	default:
		return field.ErrorList{field.NotSupported(path.Child("source"), c.Source, []CertificateSource{CertificatesGenerated, CertificatesFromFiles})}
	}
	errs = append(errs, subdomain(path.Child("secretName"), c.SecretName)...)
	errs = append(errs, ValidateLabel(path.Child("serviceName"), c.ServiceName)...)
	for i, name := range c.Names {
		if net.ParseIP(name) == nil {
			errs = append(errs, subdomain(path.Child("names").Index(i), name)...)
		}
	}
	for _, optional := range []struct{ name, value string }{
		{"mutatingWebhookConfiguration", c.MutatingWebhookConfiguration},
		{"validatingWebhookConfiguration", c.ValidatingWebhookConfiguration},
	} {
		if optional.value != "" {
			errs = append(errs, subdomain(path.Child(optional.name), optional.value)...)
		}
	}
	errs = append(errs, ValidatePositive(path, map[string]metav1.Duration{"overlap": c.Overlap})...)
	// A new certificate is made, announced for the overlap, and served.
	if c.RenewBefore.Duration <= 2*c.Overlap.Duration {
		errs = append(errs, field.Invalid(path.Child("renewBefore"), c.RenewBefore.Duration.String(),
			fmt.Sprintf("must be longer than twice overlap, which is %s", c.Overlap.Duration)))
	}
	if c.Validity.Duration <= c.RenewBefore.Duration {
		errs = append(errs, field.Invalid(path.Child("validity"), c.Validity.Duration.String(),
			fmt.Sprintf("must be longer than renewBefore, which is %s", c.RenewBefore.Duration)))
	}
	return errs
}

// digested ends the reference of an image that only one can have.
var digested = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)

// ValidateImage wants a registry or a digest. The first part of a reference is a registry if it could be no part of a
// name on Docker Hub (github.com/distribution/reference, splitDockerDomain).
func ValidateImage(path *field.Path, image string) field.ErrorList {
	const want = "must name its registry, such as registry.example.com/partition-agent:v1, or end with a digest, @sha256:..."
	host, _, isPath := strings.Cut(image, "/")
	switch {
	case image == "":
		return field.ErrorList{field.Required(path, want)}
	case isPath && (strings.ContainsAny(host, ".:") || host == "localhost") || digested.MatchString(image):
		return nil
	}
	return field.ErrorList{field.Invalid(path, image, want)}
}

// ValidatePositive wants durations that are longer than 0, by the names of their fields below the path.
func ValidatePositive(path *field.Path, values map[string]metav1.Duration) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if value := values[name].Duration; value <= 0 {
			errs = append(errs, field.Invalid(path.Child(name), value.String(), "must be longer than 0"))
		}
	}
	return errs
}

// ValidateLabel wants a DNS label, such as the name of a namespace.
func ValidateLabel(path *field.Path, value string) (errs field.ErrorList) {
	for _, message := range validation.IsDNS1123Label(value) {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

func subdomain(path *field.Path, value string) (errs field.ErrorList) {
	for _, message := range validation.IsDNS1123Subdomain(value) {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// ValidateEndpoint wants host:port. One that is optional is switched off with 0.
func ValidateEndpoint(path *field.Path, endpoint Endpoint, optional bool) field.ErrorList {
	if optional && endpoint.BindAddress == "0" {
		return nil
	}
	if err := validateAddress(endpoint.BindAddress); err != nil {
		return field.ErrorList{field.Invalid(path.Child("bindAddress"), endpoint.BindAddress, err.Error())}
	}
	return nil
}

func validateAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("must be host:port: %w", err)
	}
	if number, err := strconv.Atoi(port); err != nil || number < 1 || number > 65535 {
		return fmt.Errorf("port %q is not one of 1 to 65535", port)
	}
	return nil
}
