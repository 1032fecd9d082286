// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// The keys of the Secret. The first two are those of a Secret of the type kubernetes.io/tls, the
// third is what cert-manager calls the CA.
const (
	certKey     = corev1.TLSCertKey
	privateKey  = corev1.TLSPrivateKeyKey
	bundleKey   = "ca.crt"
	nextCertKey = "next.crt"
	nextKeyKey  = "next.key"
)

// pair is a certificate with its key and its CA.
type pair struct {
	certPEM, keyPEM []byte
	tls             *tls.Certificate
	ca              *x509.Certificate
}

// newPair makes a pair for these names and addresses, valid from an hour ago.
func newPair(names []string, validity time.Duration) (*pair, error) {
	options := cert.SelfSignedCertKeyOptions{
		Host: names[0],
		// The hour before now is part of it.
		MaxAge: validity + time.Hour,
	}
	for _, name := range names[1:] {
		if ip := net.ParseIP(name); ip != nil {
			options.AlternateIPs = append(options.AlternateIPs, ip)
		} else {
			options.AlternateDNS = append(options.AlternateDNS, name)
		}
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKeyWithOptions(options)
	if err != nil {
		return nil, err
	}
	return parsePair(certPEM, keyPEM)
}

func parsePair(certPEM, keyPEM []byte) (*pair, error) {
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	// The chain is what newPair makes: the certificate and its CA.
	ca, err := x509.ParseCertificate(certificate.Certificate[len(certificate.Certificate)-1])
	if err != nil {
		return nil, err
	}
	return &pair{certPEM: certPEM, keyPEM: keyPEM, tls: &certificate, ca: ca}, nil
}

// usable reports whether the pair serves these names now.
func (p *pair) usable(names []string, now time.Time) bool {
	if p == nil || now.After(p.end()) {
		return false
	}
	return !slices.ContainsFunc(names, func(name string) bool { return p.tls.Leaf.VerifyHostname(name) != nil })
}

func (p *pair) end() time.Time {
	return p.tls.Leaf.NotAfter
}

// state is what a Secret holds.
type state struct {
	// current is served, and next will be. Nil is none.
	current, next *pair
	// trusted are the CAs in the webhook configurations.
	trusted []*x509.Certificate
}

// parse reads a Secret. What cannot be used is as if it were not there, and the error says why.
func parse(data map[string][]byte) (state, error) {
	var (
		s    state
		errs []error
		err  error
	)
	if len(data[certKey])+len(data[privateKey]) > 0 {
		if s.current, err = parsePair(data[certKey], data[privateKey]); err != nil {
			errs = append(errs, fmt.Errorf("%s and %s: %w", certKey, privateKey, err))
		}
	}
	if len(data[nextCertKey])+len(data[nextKeyKey]) > 0 {
		if s.next, err = parsePair(data[nextCertKey], data[nextKeyKey]); err != nil {
			errs = append(errs, fmt.Errorf("%s and %s: %w", nextCertKey, nextKeyKey, err))
		}
	}
	if len(data[bundleKey]) > 0 {
		if s.trusted, err = cert.ParseCertsPEM(data[bundleKey]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", bundleKey, err))
		}
	}
	if s.current != nil && !s.trusts(s.current) {
		s.trusted = append(s.trusted, s.current.ca)
	}
	if s.next != nil && !s.trusts(s.next) {
		s.next = nil
	}
	return s, errors.Join(errs...)
}

// data is the inverse of parse.
func (s state) data() map[string][]byte {
	data := map[string][]byte{
		certKey:    s.current.certPEM,
		privateKey: s.current.keyPEM,
		bundleKey:  s.bundle(),
	}
	if s.next != nil {
		data[nextCertKey], data[nextKeyKey] = s.next.certPEM, s.next.keyPEM
	}
	return data
}

// bundle is what belongs in the webhook configurations.
func (s state) bundle() []byte {
	var bundle bytes.Buffer
	for _, ca := range s.trusted {
		// A buffer refuses nothing.
		_ = pem.Encode(&bundle, &pem.Block{Type: cert.CertificateBlockType, Bytes: ca.Raw})
	}
	return bundle.Bytes()
}

// identity changes with whatever others must see before the next step.
func (s state) identity() []byte {
	return append(s.bundle(), s.current.certPEM...)
}

// trusts reports whether the CA of a pair is in the webhook configurations.
func (s state) trusts(p *pair) bool {
	return slices.ContainsFunc(s.trusted, p.ca.Equal)
}

// step is what is to be done with a Secret.
type step string

const (
	// stepNone: nothing.
	stepNone step = "none"
	// stepIssue: there is nothing to serve. Make a pair and serve it, although nobody trusts it
	// yet.
	stepIssue step = "issue"
	// stepAnnounce: the current pair ends soon. Make the next, and have its CA trusted.
	stepAnnounce step = "announce"
	// stepPromote: serve the next pair.
	stepPromote step = "promote"
	// stepForget: trust only the CA of what is served.
	stepForget step = "forget"
)

// terms say for whom a pair is, and when it is replaced.
type terms struct {
	names                          []string
	validity, renewBefore, overlap time.Duration
}

// decide says what is to be done, or how long there is nothing to do. Everybody has seen this state
// for the time settled: zero, if a webhook configuration may still lack a CA.
func (s state) decide(t terms, now time.Time, settled time.Duration) (step, time.Duration) {
	if !s.current.usable(t.names, now) {
		if s.next.usable(t.names, now) {
			return stepPromote, 0
		}
		return stepIssue, 0
	}
	renew := s.current.end().Add(-t.renewBefore)
	switch {
	case s.next == nil && !now.Before(renew):
		return stepAnnounce, 0
	case s.next != nil && settled >= t.overlap:
		return stepPromote, 0
	case s.next == nil && len(s.trusted) > 1 && settled >= t.overlap:
		return stepForget, 0
	case s.next != nil || len(s.trusted) > 1:
		return stepNone, t.overlap - settled
	default:
		return stepNone, renew.Sub(now)
	}
}

// apply does a step. For stepIssue and stepAnnounce it takes the pair.
func (s state) apply(do step, fresh *pair) state {
	switch do {
	case stepIssue:
		// Other replicas may still serve what they have, so its CA stays.
		return state{current: fresh, trusted: append(slices.Clone(s.trusted), fresh.ca)}
	case stepAnnounce:
		return state{current: s.current, next: fresh, trusted: append(slices.Clone(s.trusted), fresh.ca)}
	case stepPromote:
		return state{current: s.next, trusted: s.trusted}
	case stepForget:
		return state{current: s.current, trusted: []*x509.Certificate{s.current.ca}}
	}
	return s
}
