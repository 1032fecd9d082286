// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// serverName is what the certificates of kube-apiservers carry, whatever their addresses: pods
// find them by it.
const serverName = "kubernetes.default.svc"

// askTimeout bounds the request to each kube-apiserver: many have addresses that cannot be
// reached from where the user is.
const askTimeout = 10 * time.Second

// What the metrics of kube-apiserver have where the plugin is (package metrics of the plugin).
const (
	pluginMetrics   = "apiserver_workload_partitioning_"
	activeMetric    = pluginMetrics + "active"
	unlatchedMetric = pluginMetrics + "unlatched"
	typeLabel       = "workload_type"
)

// Upstream counts the requests that each plugin has seen, so this is there before the plugin
// knows any type (k8s.io/apiserver, pkg/admission/metrics).
const (
	admissionMetric = "apiserver_admission_controller_admission_duration_seconds_count"
	pluginLabel     = `name="workload.openshift.io/Partitioning"`
)

// readServers asks the configured kube-apiserver, and all others if they are wanted.
func readServers(ctx context.Context, client kubernetes.Interface, config *rest.Config, all bool) (servers []Server, unknown []Unknown, err error) {
	configured, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, nil, err
	}
	servers = []Server{{URL: (&url.URL{Scheme: configured.Scheme, Host: configured.Host, Path: configured.Path}).String(), Configured: true}}
	if all {
		others, err := readReplicas(ctx, client, servers[0].URL, &unknown)
		if err != nil {
			return nil, nil, err
		}
		servers = append(servers, others...)
	}
	forbidden := make([]error, len(servers))
	var asking sync.WaitGroup
	for i := range servers {
		asking.Go(func() { forbidden[i] = servers[i].ask(ctx, config) })
	}
	asking.Wait()
	if i := slices.IndexFunc(forbidden, func(err error) bool { return err != nil }); i >= 0 {
		unknown = append(unknown, Unknown{Right: "get the path /metrics", What: "whether each kube-apiserver has the plugin, and which types are active", Error: forbidden[i].Error()})
	}
	return servers, unknown, nil
}

// ReadServer asks the configured kube-apiserver for the plugin, and for nothing else. Its error
// is that of a configuration with no address.
func ReadServer(ctx context.Context, config *rest.Config) (Server, error) {
	servers, _, err := readServers(ctx, nil, config, false)
	if err != nil {
		return Server{}, err
	}
	return servers[0], nil
}

// readReplicas returns the kube-apiservers behind the Service kubernetes in the namespace
// default, which write their addresses there themselves.
func readReplicas(ctx context.Context, client kubernetes.Interface, configured string, unknown *[]Unknown) ([]Server, error) {
	endpoints, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err := Note(unknown, "list endpointslices.discovery.k8s.io, in the namespace default", "which kube-apiservers there are besides "+configured, err); err != nil {
		return nil, err
	}
	return replicas(endpoints, configured), nil
}

// replicas returns the servers of the addresses, without the one that is configured.
func replicas(endpoints *discoveryv1.EndpointSliceList, configured string) (servers []Server) {
	if endpoints == nil {
		return nil
	}
	for _, slice := range endpoints.Items {
		for _, port := range slice.Ports {
			if port.Port == nil {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				for _, address := range endpoint.Addresses {
					servers = append(servers, Server{URL: "https://" + net.JoinHostPort(address, strconv.Itoa(int(*port.Port)))})
				}
			}
		}
	}
	slices.SortFunc(servers, func(a, b Server) int { return cmp.Compare(a.URL, b.URL) })
	return slices.DeleteFunc(slices.CompactFunc(servers, func(a, b Server) bool { return a.URL == b.URL }),
		func(s Server) bool { return s.URL == configured })
}

// ask asks a kube-apiserver for its metrics. It returns the error of a user who has no right
// to them, and notes every other one.
func (s *Server) ask(ctx context.Context, config *rest.Config) (forbidden error) {
	s.Plugin = Unreachable
	if !s.Configured {
		if config.Insecure {
			// A server at that address would learn the client's token.
			s.Error = "not asked, since the client does not verify certificates"
			return nil
		}
		config = rest.CopyConfig(config)
		config.Host, config.APIPath = s.URL, ""
		config.ServerName = cmp.Or(config.ServerName, serverName)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := s.readMetrics(ctx, config)
	if apierrors.IsForbidden(err) {
		forbidden = err
	}
	if err != nil {
		s.Error = err.Error()
	}
	return forbidden
}

func (s *Server) readMetrics(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	body, err := client.RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	return s.parse(body)
}

// parse reads metrics line by line: those of a large cluster have tens of megabytes.
func (s *Server) parse(body io.Reader) error {
	var ours bytes.Buffer
	plugin, complete := false, false
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case bytes.HasPrefix(line, []byte(pluginMetrics)):
			plugin = true
			ours.Write(line)
			ours.WriteByte('\n')
		case bytes.HasPrefix(line, []byte(admissionMetric)):
			complete = true
			plugin = plugin || bytes.Contains(line, []byte(pluginLabel))
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading metrics: %w", err)
	}
	if !plugin && !complete {
		return errors.New("its metrics have nothing about admission: it is not a kube-apiserver, or has just started")
	}
	s.Plugin = Absent
	if plugin {
		s.Plugin = Present
	}
	s.Metrics = ours.String()
	return s.readTypes(&ours)
}

// readTypes reads the states of types from the plugin's metrics.
func (s *Server) readTypes(metrics io.Reader) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return fmt.Errorf("reading metrics: %w", err)
	}
	s.Types = map[string]ServerType{}
	for name, family := range families {
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				if label.GetName() != typeLabel {
					continue
				}
				state := s.Types[label.GetValue()]
				switch is := metric.GetUntyped().GetValue() == 1; name {
				case activeMetric:
					state.Active = is
				case unlatchedMetric:
					state.Unlatched = is
				default:
					continue
				}
				s.Types[label.GetValue()] = state
			}
		}
	}
	return nil
}
