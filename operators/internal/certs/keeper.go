// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
)

// Keeper keeps a certificate and serves it. All replicas have one.
type Keeper struct {
	secret types.NamespacedName
	terms  terms
	// mutating and validating are webhook configurations, or empty.
	mutating, validating string

	served atomic.Pointer[pair]
	// missing says why kube-apiserver may not trust what is served; nil is that it does.
	missing atomic.Pointer[error]

	// since is when all webhook configurations were first seen to have the CAs of the Secret, whose
	// identity is seen. Zero is that they have not.
	since time.Time
	seen  []byte
}

// New returns the keeper of a configuration whose source of certificates is Generated.
func New(config *configv1alpha1.ControllerConfiguration) *Keeper {
	certificates := config.Certificates
	k := &Keeper{
		secret: types.NamespacedName{Namespace: config.Namespace, Name: certificates.SecretName},
		terms: terms{
			names:       append([]string{fmt.Sprintf("%s.%s.svc", certificates.ServiceName, config.Namespace)}, certificates.Names...),
			validity:    certificates.Validity.Duration,
			renewBefore: certificates.RenewBefore.Duration,
			overlap:     certificates.Overlap.Duration,
		},
		mutating:   certificates.MutatingWebhookConfiguration,
		validating: certificates.ValidatingWebhookConfiguration,
	}
	k.missing.Store(ptr.To(errors.New("no webhook configuration was looked at yet")))
	return k
}

// Cache is what a manager must cache for AddToManager: objects by name, so that the process needs no
// right to read others.
func (k *Keeper) Cache() map[client.Object]cache.ByObject {
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name)}
	}
	secret := named(k.secret.Name)
	secret.Namespaces = map[string]cache.Config{k.secret.Namespace: {}}
	objects := map[client.Object]cache.ByObject{&corev1.Secret{}: secret}
	if k.mutating != "" {
		objects[&admissionregistrationv1.MutatingWebhookConfiguration{}] = named(k.mutating)
	}
	if k.validating != "" {
		objects[&admissionregistrationv1.ValidatingWebhookConfiguration{}] = named(k.validating)
	}
	return objects
}

// Load gets the certificate, or makes it, before anything is served. The client must not read from a
// cache.
func (k *Keeper) Load(ctx context.Context, c client.Client) error {
	for {
		secret, s, err := k.read(ctx, c)
		if err != nil {
			return err
		}
		// Another replica may be first. Then what it made will do.
		if _, err = k.advance(ctx, c, secret, s, 0); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// AddToManager lets a manager keep certificate and webhook configurations, whether or not it leads.
func (k *Keeper) AddToManager(mgr manager.Manager) error {
	// Everything is one request: what is to be done follows from all objects together.
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: k.secret}}
	})
	b := builder.ControllerManagedBy(mgr).Named("certificates").
		WithOptions(controller.Options{NeedLeaderElection: ptr.To(false)})
	for object := range k.Cache() {
		b = b.Watches(object, all)
	}
	return b.Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		wait, err := k.reconcile(ctx, mgr.GetClient())
		if apierrors.IsConflict(err) {
			// Another replica was first, or the cache is behind. Either way an event comes.
			return reconcile.Result{RequeueAfter: k.terms.overlap}, nil
		}
		return reconcile.Result{RequeueAfter: wait}, err
	}))
}

// GetCertificate is for tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	served := k.served.Load()
	if served == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return served.tls, nil
}

// Ready is a check for probes: whether kube-apiserver can trust what is served.
func (k *Keeper) Ready(*http.Request) error {
	if missing := k.missing.Load(); missing != nil {
		return *missing
	}
	return nil
}

// reconcile brings CAs into the webhook configurations, and does the next step. It returns how long
// there is nothing to do.
func (k *Keeper) reconcile(ctx context.Context, c client.Client) (time.Duration, error) {
	secret, s, err := k.read(ctx, c)
	if err != nil {
		return 0, err
	}
	if s.current == nil {
		// Until there is one again, kube-apiserver goes on trusting what it did.
		return k.advance(ctx, c, secret, s, 0)
	}
	if identity := s.identity(); !bytes.Equal(identity, k.seen) {
		k.seen, k.since = identity, time.Time{}
	}
	wrote, missing, err := k.inject(ctx, c, s.bundle())
	if err != nil {
		return 0, err
	}
	var settled time.Duration
	switch {
	case missing != nil:
		k.since = time.Time{}
		k.missing.Store(&missing)
	case wrote || k.since.IsZero():
		k.since = time.Now()
		k.missing.Store(nil)
	default:
		settled = time.Since(k.since)
	}
	return k.advance(ctx, c, secret, s, settled)
}

func (k *Keeper) read(ctx context.Context, c client.Client) (*corev1.Secret, state, error) {
	var secret corev1.Secret
	if err := c.Get(ctx, k.secret, &secret); err != nil {
		return nil, state{}, fmt.Errorf("the Secret of the webhooks' certificate, which the manifests create empty: %w", err)
	}
	s, err := parse(secret.Data)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Not all of the Secret can be used; what cannot is replaced", "secret", k.secret)
	}
	return &secret, s, nil
}

// advance does the next step with the Secret, and serves what is in it then. Others have seen its
// content for the time settled.
func (k *Keeper) advance(ctx context.Context, c client.Client, secret *corev1.Secret, s state, settled time.Duration) (time.Duration, error) {
	now := time.Now()
	do, wait := s.decide(k.terms, now, settled)
	fresh := k.served.Load()
	// A person who empties the Secret must not make kube-apiservers refuse what they still trust.
	if do == stepAnnounce || do == stepIssue && !fresh.usable(k.terms.names, now) {
		var err error
		if fresh, err = newPair(k.terms.names, k.terms.validity); err != nil {
			return 0, fmt.Errorf("certificate for %v: %w", k.terms.names, err)
		}
	}
	s = s.apply(do, fresh)
	if data := s.data(); !maps.EqualFunc(data, secret.Data, bytes.Equal) {
		secret.Data = data
		if err := c.Update(ctx, secret); err != nil {
			return 0, err
		}
		klog.FromContext(ctx).Info("Wrote the webhooks' certificate", "secret", k.secret, "step", do, "notAfter", s.current.end(), "trusted", len(s.trusted))
	}
	k.served.Store(s.current)
	return wait, nil
}

// inject writes CAs into the webhook configurations. If one does not exist, missing says so.
func (k *Keeper) inject(ctx context.Context, c client.Client, bundle []byte) (wrote bool, missing, err error) {
	for _, configuration := range []struct {
		kind, name string
		object     client.Object
	}{
		{"MutatingWebhookConfiguration", k.mutating, &admissionregistrationv1.MutatingWebhookConfiguration{}},
		{"ValidatingWebhookConfiguration", k.validating, &admissionregistrationv1.ValidatingWebhookConfiguration{}},
	} {
		if configuration.name == "" {
			continue
		}
		err := c.Get(ctx, types.NamespacedName{Name: configuration.name}, configuration.object)
		if apierrors.IsNotFound(err) {
			missing = fmt.Errorf("there is no %s %s to bring the CA into", configuration.kind, configuration.name)
			continue
		}
		if err != nil {
			return wrote, missing, err
		}
		changed := false
		for _, called := range called(configuration.object) {
			if !bytes.Equal(called.CABundle, bundle) {
				called.CABundle, changed = bundle, true
			}
		}
		if !changed {
			continue
		}
		if err := c.Update(ctx, configuration.object); err != nil {
			return wrote, missing, err
		}
		klog.FromContext(ctx).Info("Brought CAs into a webhook configuration", "kind", configuration.kind, "name", configuration.name)
		wrote = true
	}
	return wrote, missing, nil
}

// called returns how kube-apiserver calls each webhook of a configuration.
func called(configuration client.Object) (called []*admissionregistrationv1.WebhookClientConfig) {
	switch configuration := configuration.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			called = append(called, &configuration.Webhooks[i].ClientConfig)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			called = append(called, &configuration.Webhooks[i].ClientConfig)
		}
	}
	return called
}
