// SPDX-License-Identifier: Apache-2.0

// Package certs keeps the certificate of webhooks in a Secret that all replicas share, and the CAs to
// trust in the webhook configurations.
//
// A certificate has a CA of its own, whose key is thrown away as soon as it has signed. So there is
// one way to renew both, it is always the same, and nobody who reads the Secret can sign anything.
// To renew takes three steps, each by whichever replica comes first, with the Secret's resource
// version:
//
//   - announce: the next certificate is in the Secret, its CA in the webhook configurations beside
//     the current one, and the current certificate is served;
//   - promote, after the overlap: the next certificate is served, and both CAs are trusted;
//   - forget, after the overlap again: the old CA goes.
//
// So at each instant every kube-apiserver, which may lag by less than the overlap, trusts what every
// replica serves, which may lag as much.
//
// The package knows no companion.
package certs
