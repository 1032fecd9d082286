// SPDX-License-Identifier: Apache-2.0

package companiontest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/foreign"
	"workload.openshift.io/operators/internal/testenv"
)

// Subject is a companion under test.
type Subject struct {
	Companion companion.Companion
	// Object returns an object that a user writes, of this name, for which the companion acts.
	Object func(name string) client.Object
	// Acted reports whether the companion has begun to act for such an object.
	Acted func(client.Object) bool
	// Elsewhere is for a companion that acts on other objects: it returns an error until that has happened. Acted is nil then.
	Elsewhere func(ctx context.Context, i *Installed, object client.Object) error
	// InHosted means that the user's object is in the hosted cluster.
	InHosted bool
	// Single means that there is at most one such object, whose name is fixed.
	Single bool
	// Traces are what it writes to nodes: a test puts them there in its name. They may have
	// labels, annotations, taints and a cordon.
	Traces corev1.Node
	// Bound reports rights that somebody gives a companion in single namespaces, by a role of their own. Without them it says what
	// is missing.
	Bound func(Right) bool
	// Unused are rights that no test can make it use, by the name of the role, each with the reason.
	Unused map[string]map[Right]string
}

// largest is how much memory a replica may take, in bytes.
const largest = 50 << 20

// patience is how long something may take that must happen, and calm how long nothing may happen
// that must not.
const (
	patience = time.Minute
	calm     = 2 * time.Second
)

// Run tests that a companion keeps the rules of all companions.
func Run(t *testing.T, s Subject) {
	i := Install(t, s.Companion.Name())
	config := i.Configuration(t)
	if s.Companion.Settings() != nil {
		if err := companion.Configure(s.Companion, config); err != nil {
			t.Fatal(err)
		}
	}
	needs := s.Companion.Needs(config)
	if needs.Hosted != nil {
		i.AddHosted(t)
	}
	t.Run("probes say the truth", func(t *testing.T) { probesSayTheTruth(t, i) })
	t.Run("a certificate that somebody else makes is served", func(t *testing.T) { servesFiles(t, i) })
	t.Run("metrics are for those who may read them", func(t *testing.T) { metricsAreProtected(t, i) })
	if cachesNodes(needs.Home.Cache) {
		t.Run("metrics say which nodes are claimed", func(t *testing.T) { claimsAreCounted(t, i) })
	}
	t.Run("it takes no more memory than it may", func(t *testing.T) { s.staysSmall(t, i) })
	t.Run("another replica goes on after one was killed", func(t *testing.T) { s.goesOnAfterAKill(t, i) })
	t.Run("another replica goes on at once after one has ended", func(t *testing.T) { s.goesOnAfterAnEnd(t, i) })
	t.Run("a paused object is left alone", func(t *testing.T) { s.leavesPausedObjectsAlone(t, i) })
	for _, other := range needs.Home.Foreign {
		t.Run("it waits for "+other.Name, func(t *testing.T) { s.waitsFor(t, i, i, other) })
	}
	if needs.Hosted != nil {
		for _, other := range needs.Hosted.Foreign {
			t.Run("it waits for "+other.Name+" in the hosted cluster", func(t *testing.T) { s.waitsFor(t, i, i.Hosted, other) })
		}
	}
	t.Run("no right is a wildcard, or more than it may be", func(t *testing.T) { rightsAreModest(t, s.Companion.Name()) })
	t.Run("every right is used", func(t *testing.T) { s.usesItsRights(t, i) })
	t.Run("it ends although it may read nothing", func(t *testing.T) { endsWithoutRights(t, i) })
	t.Run("nothing is left of it", func(t *testing.T) { s.leavesNothing(t, i) })
}

func cachesNodes(cached map[client.Object]cache.ByObject) bool {
	for object := range cached {
		if _, ok := object.(*corev1.Node); ok {
			return true
		}
	}
	return false
}

// write creates an object for which the companion acts.
func (s Subject) write(t *testing.T, i *Installed, name string, annotations map[string]string) client.Object {
	t.Helper()
	object := s.Object(name)
	object.SetAnnotations(annotations)
	in := s.objects(i)
	if s.Single {
		if err := client.IgnoreNotFound(in.Delete(t.Context(), object.DeepCopyObject().(client.Object))); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	remove(t, in, object)
	return object
}

// objects is a client for the cluster that has the users' objects.
func (s Subject) objects(i *Installed) client.Client {
	if s.InHosted {
		return i.Hosted.Client
	}
	return i.Client
}

// acted returns an error until the companion has acted for an object.
func (s Subject) acted(t *testing.T, i *Installed, object client.Object) error {
	t.Helper()
	if err := s.objects(i).Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	if s.Elsewhere != nil {
		return s.Elsewhere(t.Context(), i, object)
	}
	if !s.Acted(object) {
		return fmt.Errorf("it has not acted for %T %s", object, object.GetName())
	}
	return nil
}

func (s Subject) mustAct(t *testing.T, i *Installed, object client.Object) {
	t.Helper()
	testenv.Eventually(t, patience, func() error { return s.acted(t, i, object) })
}

func (s Subject) mustNotAct(t *testing.T, i *Installed, object client.Object) {
	t.Helper()
	testenv.Always(t, calm, func() error {
		if s.acted(t, i, object) == nil {
			return fmt.Errorf("it has acted for %T %s", object, object.GetName())
		}
		return nil
	})
}

// get returns the status and the body that a replica answers.
func get(t testing.TB, url, token string, ca []byte) (int, string, error) {
	t.Helper()
	config := &rest.Config{BearerToken: token}
	if ca != nil {
		config.CAData = ca
	} else {
		config.Insecure = true
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := httpClient.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// Ready returns an error until the replicas that were started last are ready.
func (i *Installed) Ready(t testing.TB) error {
	t.Helper()
	return errors.Join(i.controllers.probe(t, "readyz"), i.webhooks.probe(t, "readyz"))
}

func (p ports) probe(t testing.TB, path string) error {
	t.Helper()
	status, body, err := get(t, fmt.Sprintf("http://127.0.0.1:%d/%s?verbose", p.health, path), "", nil)
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("%s is %d: %s %w", path, status, body, errors.Join(err))
	}
	return nil
}

func probesSayTheTruth(t *testing.T, i *Installed) {
	if !i.hasWebhooks(t) {
		i.Start(t, nil)
		testenv.Eventually(t, patience, func() error { return i.Ready(t) })
		return
	}
	// Without the objects that CAs belong in, kube-apiserver cannot call a webhook.
	i.Kubectl(t, "delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--selector=app.kubernetes.io/name="+i.Name)
	i.Start(t, nil)
	alive := func() error {
		return errors.Join(i.controllers.probe(t, "healthz"), i.webhooks.probe(t, "healthz"))
	}
	testenv.Eventually(t, patience, alive)
	testenv.Eventually(t, patience, func() error {
		if err := i.controllers.probe(t, "readyz"); err == nil || !strings.Contains(err.Error(), "[-]certificates") || !strings.Contains(err.Error(), "[+]caches") {
			return fmt.Errorf("without webhook configurations: %w", errors.Join(err))
		}
		return nil
	})
	if err := alive(); err != nil {
		t.Error(err)
	}
	Install(t, i.Name)
	testenv.Eventually(t, patience, func() error { return i.Ready(t) })
}

// servesFiles does what a volume does with a Secret of cert-manager's.
func servesFiles(t *testing.T, i *Installed) {
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for file, data := range map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM} {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	webhooks := i.hasWebhooks(t)
	port := func() int {
		if webhooks {
			return i.webhooks.webhook
		}
		return i.controllers.metrics
	}
	serves := func(name string) func() error {
		return func() error {
			connection, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port()), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				return err
			}
			defer connection.Close()
			return connection.ConnectionState().PeerCertificates[0].VerifyHostname(name)
		}
	}
	write("first.example.com")
	i.Start(t, func(config *configv1alpha1.ControllerConfiguration) {
		config.Certificates = configv1alpha1.CertificatesConfiguration{Source: configv1alpha1.CertificatesFromFiles, Directory: dir}
		config.TLS.MinVersion = "VersionTLS13"
	})
	testenv.Eventually(t, patience, func() error { return i.Ready(t) })
	testenv.Eventually(t, patience, serves("first.example.com"))
	serving := map[string]int{"the controllers' metrics": i.controllers.metrics}
	if webhooks {
		serving["the webhooks"], serving["their metrics"] = i.webhooks.webhook, i.webhooks.metrics
	}
	for n, port := range i.webhooks.own {
		serving[fmt.Sprintf("endpoint %d of the settings", n)] = port
	}
	for name, port := range serving {
		testenv.Eventually(t, patience, func() error { // each listens a moment later
			connection, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
			if err == nil {
				connection.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "protocol version") {
				return fmt.Errorf("%s: with TLS 1.2, where 1.3 is the least: %w", name, errors.Join(err))
			}
			return nil
		})
	}
	write("second.example.com")
	testenv.Eventually(t, patience, serves("second.example.com"))
}

// scraper waits until the replica that was started last is ready, and returns the CA of its certificate and the token of a
// ServiceAccount that has no rights.
func (i *Installed) scraper(t testing.TB) (ca []byte, token string) {
	t.Helper()
	testenv.Eventually(t, patience, func() error { return i.Ready(t) })
	var secret corev1.Secret
	if err := i.Client.Get(t.Context(), client.ObjectKey{Namespace: i.Namespace, Name: "webhook-certificate"}, &secret); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "prometheus"}}
	if err := client.IgnoreAlreadyExists(i.Client.Create(t.Context(), account)); err != nil {
		t.Fatal(err)
	}
	remove(t, i.Client, account)
	return secret.Data["ca.crt"], i.Token(t, "default", "prometheus", nil)
}

// scrape asks the replica that was started last for its metrics.
func (i *Installed) scrape(t testing.TB, token string, ca []byte) (int, string, error) {
	t.Helper()
	return get(t, fmt.Sprintf("https://127.0.0.1:%d/metrics", i.controllers.metrics), token, ca)
}

// Metrics returns the metrics of the replica that was started last, once it is ready. Who asks has the role of the documentation until the
// test ends.
func (i *Installed) Metrics(t testing.TB) string {
	t.Helper()
	ca, token := i.scraper(t)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: i.Name + "-metrics"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "prometheus"}},
	}
	if err := client.IgnoreAlreadyExists(i.Client.Create(t.Context(), binding)); err != nil {
		t.Fatal(err)
	}
	remove(t, i.Client, binding)
	// The replica remembers for half a minute what was denied.
	i.awaitRight(t, "system:serviceaccount:default:prometheus", authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}})
	status, body, err := i.scrape(t, token, ca)
	if err != nil || status != http.StatusOK {
		t.Fatalf("the metrics are %d: %s %v", status, body, err)
	}
	return body
}

// A claim does not expire, and there is an alert.
func claimsAreCounted(t *testing.T, i *Installed) {
	claim := nodegroup.Claim{Owner: "somebody", Operation: "a", Since: time.Unix(1795428000, 0)}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "claimed", Annotations: map[string]string{nodegroup.ClaimAnnotation: claim.String()}}}
	if err := i.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	remove(t, i.Client, node)
	i.Start(t, nil)
	testenv.Eventually(t, patience, func() error {
		if metrics := i.Metrics(t); !strings.Contains(metrics, `partition_controller_node_claim_timestamp_seconds{node="claimed",owner="other"} 1.795428e+09`) {
			return errors.New("the metrics do not say so")
		}
		return nil
	})
}

func metricsAreProtected(t *testing.T, i *Installed) {
	i.Start(t, nil)
	ca, token := i.scraper(t)
	for name, test := range map[string]struct {
		token string
		want  int
	}{
		"without a token":           {"", http.StatusUnauthorized},
		"with a token of nobody":    {"nobody", http.StatusInternalServerError}, // as controller-runtime has it
		"with a token, but no role": {token, http.StatusForbidden},
	} {
		if status, body, err := i.scrape(t, test.token, ca); status != test.want {
			t.Errorf("%s: %d, want %d: %s %v", name, status, test.want, body, err)
		}
	}
	// This one remembers what was denied.
	i.Start(t, nil)
	if metrics := i.Metrics(t); !strings.Contains(metrics, "rest_client_requests_total") {
		t.Errorf("with the role: %s", metrics)
	}
}

// staysSmall measures a replica that leads, beside a hundred nodes and ten objects that it acts for.
func (s Subject) staysSmall(t *testing.T, i *Installed) {
	for number := range 100 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node%d", number)}}
		for image := range 50 {
			// What makes a real node large.
			name := fmt.Sprintf("registry.example.com/some/where/an-image-of-a-usual-name@sha256:%064d", image)
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{name}, SizeBytes: 1 << 24})
		}
		if err := i.nodes().Client.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		remove(t, i.nodes().Client, node)
	}
	replica := i.Start(t, nil)
	for number := range 10 {
		s.mustAct(t, i, s.write(t, i, fmt.Sprintf("object%d", number), nil))
	}
	for part, process := range map[string]*testenv.Process{"the controllers": replica, "the webhooks": i.server} {
		memory := process.Memory(t)
		t.Logf("%s: %d MiB of their own", part, memory>>20)
		if memory > largest {
			t.Errorf("%s take %d MiB of their own, and may take %d", part, memory>>20, largest>>20)
		}
	}
}

func (s Subject) goesOnAfterAKill(t *testing.T, i *Installed) {
	first := i.Start(t, nil)
	s.mustAct(t, i, s.write(t, i, "before", nil))
	i.Start(t, nil)
	testenv.Eventually(t, patience, func() error { return i.Ready(t) })
	between := s.write(t, i, "between", nil)
	first.Kill()
	s.mustAct(t, i, between)
	s.mustAct(t, i, s.write(t, i, "after", nil))
}

func (s Subject) goesOnAfterAnEnd(t *testing.T, i *Installed) {
	// Without waiting for the Lease: it was given back.
	long := func(config *configv1alpha1.ControllerConfiguration) {
		config.LeaderElection.LeaseDuration.Duration = 2 * time.Minute
		config.LeaderElection.RenewDeadline.Duration = time.Minute
	}
	first := i.Start(t, long)
	s.mustAct(t, i, s.write(t, i, "before", nil))
	i.Start(t, long)
	testenv.Eventually(t, patience, func() error { return i.Ready(t) })
	if err := first.Terminate(t, patience); err != nil {
		t.Errorf("a replica that was asked to end: %v", err)
	}
	s.mustAct(t, i, s.write(t, i, "after", nil))
}

// endsWithoutRights has one wait for objects that it may not list. It may also end by itself, and say why.
func endsWithoutRights(t *testing.T, i *Installed) {
	i.Kubectl(t, "delete", "clusterrolebindings", "--selector=app.kubernetes.io/name="+i.Name)
	t.Cleanup(func() { Install(t, i.Name) })
	process, ports := i.start(t, i.Configuration(t), configv1alpha1.Controllers, i.Identity(t, controllersAccount))
	testenv.Eventually(t, patience, func() error {
		if !process.Running() {
			return nil
		}
		return ports.probe(t, "healthz")
	})
	_ = process.Terminate(t, patience) // whether that is an error depends on what it may not list
}

func (s Subject) leavesPausedObjectsAlone(t *testing.T, i *Installed) {
	i.Start(t, nil)
	paused := s.write(t, i, "paused", map[string]string{nodegroup.PausedAnnotation: ""})
	if !s.Single {
		s.mustAct(t, i, s.write(t, i, "not-paused", nil))
	}
	s.mustNotAct(t, i, paused)
	before := paused.DeepCopyObject().(client.Object)
	paused.SetAnnotations(nil)
	if err := s.objects(i).Patch(t.Context(), paused, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.mustAct(t, i, paused)
}

// waitsFor tests each Deployment of another manager: before the start, and while it runs. What it writes to single
// objects is the companion's to leave alone, and to test.
func (s Subject) waitsFor(t *testing.T, i, in *Installed, other foreign.Manager) {
	for _, name := range other.Deployments {
		t.Run("its Deployment "+name.String(), func(t *testing.T) {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name.Namespace}}
			if err := in.Client.Create(t.Context(), namespace); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
			labels := map[string]string{"app": name.Name}
			trace := &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
				Spec: appsv1.DeploymentSpec{
					Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: labels},
						Spec:       corev1.PodSpec{ServiceAccountName: "manager", Containers: []corev1.Container{{Name: "manager", Image: "manager"}}},
					},
				},
			}
			leave := func() {
				if err := in.Client.Create(context.Background(), trace.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
			remove(t, in.Client, trace)
			leave()
			// Anybody who may create the namespace may create that.
			replica := i.Start(t, nil)
			s.mustAct(t, i, s.write(t, i, "beside-a-name", nil))
			replica.Kill()
			i.FreeLease(t)

			role := "--resource=" + other.Writes.Resource
			if other.Writes.Group != "" {
				role += "." + other.Writes.Group
			}
			if other.Writes.Subresource != "" {
				role += "/" + other.Writes.Subresource
			}
			in.Kubectl(t, "create", "clusterrole", "manager", "--verb="+other.Writes.Verb, role)
			in.Kubectl(t, "create", "clusterrolebinding", "manager", "--clusterrole=manager", "--serviceaccount="+name.Namespace+":manager")
			t.Cleanup(func() { in.Kubectl(t, "delete", "clusterrole,clusterrolebinding", "manager") })
			testenv.Eventually(t, patience, func() error { // kube-apiserver learns of it a moment later
				found, err := foreign.Find(t.Context(), in.Client, in.Client, []foreign.Manager{other})
				if err == nil && found == nil {
					err = errors.New("it is not found")
				}
				return err
			})
			replica = i.Start(t, nil)
			object := s.write(t, i, "foreign", nil)
			testenv.Eventually(t, patience, func() error {
				if log := replica.Log(); !strings.Contains(log, other.Name) || !strings.Contains(log, other.HandOver) {
					return fmt.Errorf("the log does not say %s, and %q", other.Name, other.HandOver)
				}
				return nil
			})
			s.mustNotAct(t, i, object)
			testenv.Eventually(t, patience, func() error { return i.Ready(t) }) // webhooks must be answered all the same
			testenv.Eventually(t, patience, func() error {
				events := i.Kubectl(t, "get", "events.events.k8s.io", "--namespace", i.Namespace, "--output=jsonpath={.items[*].note}")
				if !strings.Contains(events, other.HandOver) {
					return fmt.Errorf("no Event says %q: %s", other.HandOver, events)
				}
				return nil
			})
			if err := in.Client.Delete(t.Context(), trace.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			s.mustAct(t, i, object)

			leave()
			if err := replica.Wait(t, patience); err == nil {
				t.Error("it ended without an error when the other manager came back")
			}
		})
	}
}
