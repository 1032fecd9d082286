// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"workload.openshift.io/kubernetes/node/kubeletstate"
	"workload.openshift.io/operators/numaresources"
)

// Kubelet is where the node's kubelet answers, and who vouches for its certificate. Files are read for each request, since they
// may be renewed. One whose path is empty is left out.
type Kubelet struct {
	// Host is the IP address of this pod's host, and Port the kubelet's.
	Host, Port string
	// Token returns what the pod shows the kubelet.
	Token func() (string, error)
	// CA is a file with the CAs of kubelets' serving certificates, and ClusterCA one with the cluster's.
	CA, ClusterCA string
	// Certificate is the kubelet's own certificate file, for a certificate that no CA has signed.
	Certificate string
}

const (
	kubeletTimeout = 5 * time.Second
	maxConfigz     = 1 << 20
)

// errNotVerified is what is wrong with a certificate.
var errNotVerified = errors.New("the kubelet's certificate is not verified")

// Running reads how the kubelet runs, from its configz. The code in the result says in short what the error does.
func (k Kubelet) Running(ctx context.Context) (numaresources.Kubelet, error) {
	unknown := func(code numaresources.PolicyUnknown, err error) (numaresources.Kubelet, error) {
		return numaresources.Kubelet{Unknown: code}, err
	}
	ctx, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	token, err := k.Token()
	if err != nil {
		return unknown(numaresources.ConfigzForbidden, err)
	}
	at := url.URL{Scheme: "https", Host: net.JoinHostPort(k.Host, k.Port), Path: "/configz"}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return unknown(numaresources.KubeletUnreachable, err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{
		Transport: &http.Transport{
			// Each connection is verified again, and never goes through a proxy.
			DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS12,
				// verify does more than the library: a certificate may also be the one in the kubelet's file. It is called
				// before anything is sent.
				InsecureSkipVerify: true,
				VerifyConnection:   k.verify,
			},
		},
		// The token is for this kubelet alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	switch {
	case errors.Is(err, errNotVerified):
		return unknown(numaresources.CertificateNotVerified, err)
	case err != nil:
		return unknown(numaresources.KubeletUnreachable, err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return unknown(numaresources.ConfigzForbidden, fmt.Errorf("GET %s: %s: it needs the right to get nodes/configz", at.String(), response.Status))
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return unknown(numaresources.ConfigzNotServed, fmt.Errorf("GET %s: %s: the kubelet may have enableDebuggingHandlers: false", at.String(), response.Status))
	default:
		return unknown(numaresources.KubeletUnreachable, fmt.Errorf("GET %s: %s", at.String(), response.Status))
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxConfigz))
	if err != nil {
		return unknown(numaresources.KubeletUnreachable, err)
	}
	running, err := numaresources.ParseConfigz(data)
	if err != nil {
		return unknown(numaresources.ConfigzInvalid, fmt.Errorf("GET %s: %w", at.String(), err))
	}
	return running, nil
}

// verify accepts a kubelet's certificate that one of the CAs has signed for the host's address, or that is byte for byte the
// one in the kubelet's file.
func (k Kubelet) verify(state tls.ConnectionState) error {
	var why []string
	leaf := state.PeerCertificates[0]
	intermediates := x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		intermediates.AddCert(certificate)
	}
	for _, path := range []string{k.CA, k.ClusterCA} {
		if path == "" {
			continue
		}
		roots := x509.NewCertPool()
		data, err := kubeletstate.ReadFile(path)
		if err == nil && !roots.AppendCertsFromPEM(data) {
			err = errors.New("it has no certificate")
		}
		if err == nil {
			_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, DNSName: k.Host, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		}
		if err == nil {
			return nil
		}
		why = append(why, fmt.Sprintf("CA %s: %v", path, err))
	}
	if k.Certificate != "" {
		data, err := kubeletstate.ReadFile(k.Certificate)
		if err == nil {
			// The kubelet's comes first.
			if block, _ := pem.Decode(data); block != nil && block.Type == "CERTIFICATE" && bytes.Equal(block.Bytes, leaf.Raw) {
				return nil
			}
			err = errors.New("it has another certificate")
		}
		why = append(why, fmt.Sprintf("certificate %s: %v", k.Certificate, err))
	}
	return fmt.Errorf("%w: %s", errNotVerified, strings.Join(why, "; "))
}
