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

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/companion"
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

// run runs some of all companions until the context ends, and returns once all that has begun has ended.
func run(ctx context.Context, restConfig *rest.Config, config *configv1alpha1.ControllerConfiguration, companions, all []companion.Companion) error {
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "companions", config.Controllers, "namespace", config.Namespace)

	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	cached := map[client.Object]cache.ByObject{}
	needs := map[string]companion.Needs{}
	for _, c := range companions {
		need := c.Needs(config)
		needs[c.Name()] = need
		if need.AddToScheme != nil {
			if err := need.AddToScheme(scheme); err != nil {
				return fmt.Errorf("companion %s: %w", c.Name(), err)
			}
		}
		if err := addCache(cached, need.Cache, scheme); err != nil {
			return fmt.Errorf("companion %s: %w", c.Name(), err)
		}
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
		if err := addCache(cached, keeper.Cache(), scheme); err != nil {
			return err
		}
		// The webhook server does not start without a certificate, and caches not before it.
		direct, err := client.New(restConfig, client.Options{Scheme: scheme})
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
	mgr, err := manager.New(restConfig, manager.Options{
		Scheme:      scheme,
		Logger:      logger,
		BaseContext: func() context.Context { return klog.NewContext(context.Background(), logger) },
		Cache: cache.Options{
			ByObject:                    stripped(cached, needs),
			DefaultTransform:            cache.TransformStripManagedFields(),
			ReaderFailOnMissingInformer: true,
		},
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
	for _, c := range companions {
		// So a missing kind shows here, and caches are ready only if all of them are.
		for object := range needs[c.Name()].Cache {
			if _, err := mgr.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
				return fmt.Errorf("companion %s needs %T: %w", c.Name(), object, err)
			}
		}
		gated, err := newGate(mgr, c.Name(), needs[c.Name()].Foreign, config)
		if err != nil {
			return err
		}
		if err := c.AddToManager(ctx, gated, config); err != nil {
			return fmt.Errorf("companion %s: %w", c.Name(), err)
		}
	}
	for object := range cached {
		if _, is := object.(*corev1.Node); is && config.Runs(configv1alpha1.Controllers) {
			if err := mgr.Add(watchClaims(mgr.GetClient(), names(all))); err != nil {
				return err
			}
			break // several companions may cache them
		}
	}
	if err := addProbes(mgr, keeper, config.Runs(configv1alpha1.Webhooks)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// addCache adds kinds to be cached. A process has one cache of a kind, with one selection and one transform function.
func addCache(cached, more map[client.Object]cache.ByObject, scheme *runtime.Scheme) error {
	for object, by := range more {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return err
		}
		for other := range cached {
			if is, err := apiutil.GVKForObject(other, scheme); err != nil || is == kind {
				return errors.Join(err, fmt.Errorf("something else in this process caches the kind %s; run them in processes of their own, with one name in controllers", kind.GroupKind()))
			}
		}
		cached[object] = by
	}
	return nil
}

// stripped drops managed fields from what is cached, but for those of foreign managers, before a companion drops more.
func stripped(objects map[client.Object]cache.ByObject, needs map[string]companion.Needs) map[client.Object]cache.ByObject {
	var owners []string
	for _, need := range needs {
		for _, manager := range need.Foreign {
			for _, fields := range manager.Fields {
				owners = append(owners, fields.Owner)
			}
		}
	}
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
		objects[object] = by
	}
	return objects
}

// addProbes lets /readyz say whether a webhook would be answered, and from a complete cache.
func addProbes(mgr manager.Manager, keeper *certs.Keeper, webhooks bool) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	checks := map[string]healthz.Checker{
		"caches": func(request *http.Request) error {
			ctx, cancel := context.WithTimeout(request.Context(), time.Second)
			defer cancel()
			if !mgr.GetCache().WaitForCacheSync(ctx) {
				return errors.New("not all objects are in the cache yet")
			}
			return nil
		},
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
