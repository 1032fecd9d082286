// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/companion"
	"workload.openshift.io/operators/foreign"
	"workload.openshift.io/operators/internal/certs"
)

// The rights that the controllers of every companion need, beside its own. Its Lease and its Secret are in its own
// namespace, which the manifests put in the place of system. There, client-go's leader election
// writes Events of the older kind.
//
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=system,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=system,resourceNames=partition-controller,verbs=get;update
// +kubebuilder:rbac:groups="",resources=secrets,namespace=system,resourceNames=webhook-certificate,verbs=get;list;watch;update
// +kubebuilder:rbac:groups="",resources=events,namespace=system,verbs=create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// run runs one of all companions until the context ends, and returns once all that has begun has ended. The hosted
// cluster's configuration may be nil.
func run(ctx context.Context, home, hosted *rest.Config, config *configv1alpha1.ControllerConfiguration, c companion.Companion, all []companion.Companion) error {
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "companion", c.Name(), "namespace", config.Namespace)

	needs := c.Needs(config)
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if needs.AddToScheme != nil {
		if err := needs.AddToScheme(scheme); err != nil {
			return err
		}
	}
	cached := maps.Clone(needs.Home.Cache)
	if cached == nil {
		cached = map[client.Object]cache.ByObject{}
	}

	var (
		getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
		keeper         *certs.Keeper
		watcher        *certwatcher.CertWatcher
	)
	if config.Certificates.Source == configv1alpha1.CertificatesFromFiles || !config.Runs(configv1alpha1.Controllers) {
		var err error
		directory := config.Certificates.Directory
		if watcher, err = certwatcher.New(filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")); err != nil {
			return fmt.Errorf("certificates.directory %s: %w", directory, err)
		}
		getCertificate = watcher.GetCertificate
	} else {
		keeper = certs.New(config)
		getCertificate = keeper.GetCertificate
		maps.Copy(cached, keeper.Cache())
		// The webhook server does not start without a certificate, and caches not before it.
		direct, err := client.New(home, client.Options{Scheme: scheme})
		if err != nil {
			return err
		}
		if err := keeper.Load(ctx, direct); err != nil {
			return err
		}
	}
	minVersion, err := cliflag.TLSVersion(config.TLS.MinVersion)
	if err != nil {
		return fmt.Errorf("tls.minVersion: %w", err)
	}
	cipherSuites, err := cliflag.TLSCipherSuites(config.TLS.CipherSuites)
	if err != nil {
		return fmt.Errorf("tls.cipherSuites: %w", err)
	}
	serving := []func(*tls.Config){func(config *tls.Config) {
		config.GetCertificate, config.MinVersion, config.CipherSuites = getCertificate, minVersion, cipherSuites
	}}

	host, portText, err := net.SplitHostPort(config.Webhook.BindAddress)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return err
	}
	mgr, err := manager.New(home, manager.Options{
		Scheme:        scheme,
		Logger:        logger,
		BaseContext:   func() context.Context { return klog.NewContext(context.Background(), logger) },
		Cache:         cacheOptions(cached, needs.Home.Foreign),
		WebhookServer: webhook.NewServer(webhook.Options{Host: host, Port: port, TLSOpts: serving}),
		Metrics: metricsserver.Options{
			BindAddress:    config.Metrics.BindAddress,
			SecureServing:  true,
			FilterProvider: filters.WithAuthenticationAndAuthorization,
			TLSOpts:        serving,
		},
		HealthProbeBindAddress: config.Health.BindAddress,

		LeaderElection:             *config.LeaderElection.LeaderElect && config.Runs(configv1alpha1.Controllers),
		LeaderElectionResourceLock: config.LeaderElection.ResourceLock,
		LeaderElectionNamespace:    config.LeaderElection.ResourceNamespace,
		LeaderElectionID:           config.LeaderElection.ResourceName,
		LeaseDuration:              &config.LeaderElection.LeaseDuration.Duration,
		RenewDeadline:              &config.LeaderElection.RenewDeadline.Duration,
		RetryPeriod:                &config.LeaderElection.RetryPeriod.Duration,
		// The process ends when Start returns.
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &config.GracefulShutdownTimeout.Duration,
	})
	if err != nil {
		return err
	}

	if keeper != nil {
		if err := keeper.AddToManager(mgr); err != nil {
			return err
		}
	} else if err := mgr.Add(watcher); err != nil {
		return err
	}
	clusters := companion.Clusters{Home: mgr}
	reads := map[cluster.Cluster]map[client.Object]cache.ByObject{mgr: needs.Home.Cache}
	if needs.Hosted != nil {
		if hosted == nil {
			return fmt.Errorf("companion %s works for a hosted cluster: hostedConnection.kubeconfig is missing", c.Name())
		}
		clusters.Hosted, err = cluster.New(hosted, func(options *cluster.Options) {
			options.Scheme, options.Logger = scheme, logger
			options.Cache = cacheOptions(needs.Hosted.Cache, needs.Hosted.Foreign)
		})
		if err != nil {
			return fmt.Errorf("hosted cluster: %w", err)
		}
		if err := mgr.Add(clusters.Hosted); err != nil {
			return err
		}
		reads[clusters.Hosted] = needs.Hosted.Cache
	}
	for in, objects := range reads {
		// So a missing kind shows here, and caches are ready only if all of them are.
		for object := range objects {
			if _, err := in.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
				return fmt.Errorf("companion %s needs %T: %w", c.Name(), object, err)
			}
			if _, is := object.(*corev1.Node); is && config.Runs(configv1alpha1.Controllers) {
				if err := mgr.Add(watchClaims(in.GetClient(), names(all))); err != nil {
					return err
				}
			}
		}
	}
	gated, err := newGate(clusters, c.Name(), needs, config)
	if err != nil {
		return err
	}
	if err := c.AddToManager(ctx, gated, config); err != nil {
		return fmt.Errorf("companion %s: %w", c.Name(), err)
	}
	caches := slices.Collect(maps.Keys(reads))
	if err := addProbes(mgr, caches, keeper, config.Runs(configv1alpha1.Webhooks)); err != nil {
		return err
	}
	return start(ctx, mgr, caches)
}

// start runs the manager until the context ends. One whose caches are not full by then, as without the right to list, would go on for
// ever and use a CPU (runnableGroup.Start of controller-runtime's pkg/manager), so it is left behind.
func start(ctx context.Context, mgr manager.Manager, caches []cluster.Cluster) error {
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if err := full(context.WithoutCancel(ctx), caches); err != nil {
		return err
	}
	return <-ended
}

// full returns an error if caches do not become full within a second.
func full(ctx context.Context, caches []cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, each := range caches {
		if !each.GetCache().WaitForCacheSync(ctx) {
			return errors.New("not all objects are in the cache yet")
		}
	}
	return nil
}

// cacheOptions caches these objects and no others. Managed fields are dropped, but for those of foreign managers,
// before a companion drops more.
func cacheOptions(objects map[client.Object]cache.ByObject, managers []foreign.Manager) cache.Options {
	var owners []string
	for _, manager := range managers {
		for _, fields := range manager.Fields {
			owners = append(owners, fields.Owner)
		}
	}
	stripped := map[client.Object]cache.ByObject{}
	for object, by := range objects {
		transform := by.Transform
		by.Transform = toolscache.TransformFunc(func(in any) (any, error) {
			if object, is := in.(client.Object); is {
				object.SetManagedFields(slices.DeleteFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return !slices.Contains(owners, entry.Manager) }))
			}
			if transform == nil {
				return in, nil
			}
			return transform(in)
		})
		stripped[object] = by
	}
	return cache.Options{ByObject: stripped, DefaultTransform: cache.TransformStripManagedFields(), ReaderFailOnMissingInformer: true}
}

// addProbes lets /readyz say whether a webhook would be answered, and from a complete cache.
func addProbes(mgr manager.Manager, clusters []cluster.Cluster, keeper *certs.Keeper, webhooks bool) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	checks := map[string]healthz.Checker{
		"caches": func(request *http.Request) error { return full(request.Context(), clusters) },
	}
	if keeper != nil {
		checks["certificates"] = keeper.Ready
	}
	if webhooks {
		checks["webhooks"] = mgr.GetWebhookServer().StartedChecker()
	}
	for name, check := range checks {
		if err := mgr.AddReadyzCheck(name, check); err != nil {
			return err
		}
	}
	return nil
}
