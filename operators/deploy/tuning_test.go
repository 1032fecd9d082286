// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/internal/companiontest"
)

// The ServiceMonitor names a Service, its port, a certificate's name and a CA, all of which others make.
func TestPrometheusFindsTuning(t *testing.T) {
	for _, name := range []string{"tuning", "tuning-ordinary"} {
		t.Run(name, func(t *testing.T) {
			i := companiontest.Install(t, "nodepool") // for kubectl alone
			directory := t.TempDir()
			path := func(name string) string {
				relative, err := filepath.Rel(directory, companiontest.Base(name))
				if err != nil {
					t.Fatal(err)
				}
				return relative
			}
			if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), fmt.Appendf(nil, "resources: [%s]\ncomponents: [%s]\n", path(name), path("tuning/monitoring")), 0o600); err != nil {
				t.Fatal(err)
			}
			var monitor *unstructured.Unstructured
			services, secrets := map[string]corev1.Service{}, map[string]bool{}
			for _, object := range renderedFrom(t, i, directory) {
				switch object.GetKind() {
				case "ServiceMonitor":
					monitor = object
				case "Service":
					services[object.GetName()] = convert[corev1.Service](t, object)
				case "Secret":
					secrets[object.GetName()] = true
				}
			}
			if monitor == nil {
				t.Fatal("there is no ServiceMonitor")
			}
			selector, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
			endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
			if len(endpoints) != 1 || len(services) != 1 {
				t.Fatalf("there are the endpoints %v and the Services %v", endpoints, services)
			}
			endpoint := endpoints[0].(map[string]any)
			for _, service := range services {
				for key, value := range selector {
					if service.Labels[key] != value || service.Namespace != monitor.GetNamespace() {
						t.Errorf("the ServiceMonitor of namespace %s wants %s=%s, and the Service has %v", monitor.GetNamespace(), key, value, service.ObjectMeta)
					}
				}
				if !slices.ContainsFunc(service.Spec.Ports, func(port corev1.ServicePort) bool { return port.Name == endpoint["port"] }) {
					t.Errorf("the ServiceMonitor wants the port %v, and the Service has %v", endpoint["port"], service.Spec.Ports)
				}
			}
			config, err := configv1alpha1.Read(companiontest.WithImage(t, name), "partition-tuning")
			if err != nil {
				t.Fatal(err)
			}
			serverName, _, _ := unstructured.NestedString(endpoint, "tlsConfig", "serverName")
			ca, _, _ := unstructured.NestedString(endpoint, "tlsConfig", "ca", "secret", "name")
			if !slices.Contains(config.Certificates.Names, serverName) || !secrets[ca] {
				t.Errorf("the certificate is for %v, of the Secrets %v; the ServiceMonitor wants %s of %s", config.Certificates.Names, slices.Collect(maps.Keys(secrets)), serverName, ca)
			}
		})
	}
}
