// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// pki is the cluster's certificate authority. Its key is forgotten when the command that starts
// the cluster ends, except on a dedicated host.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// validity is how long a development cluster can be used.
const validity = 365 * 24 * time.Hour

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// The authority of another host, whose cluster this one joins.
	if p, err := readPKI(dir); !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "workload partitioning development CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	p := &pki{dir: dir, key: key}
	if p.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return p, p.writeCert("ca.crt", p.cert)
}

// readPKI reads the authority whose certificate and key are in a directory.
func readPKI(dir string) (*pki, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	if err != nil {
		return nil, err
	}
	return &pki{dir: dir, cert: pair.Leaf, key: pair.PrivateKey.(crypto.Signer)}, nil
}

// keep writes the authority's key, so that other hosts can join the cluster.
func (p *pki) keep() error { return p.writeKey("ca.key", p.key) }

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

// issue writes NAME.crt and NAME.key: a server's if there are addresses, otherwise a client's.
func (p *pki) issue(name string, subject pkix.Name, addresses ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: p.cert.NotBefore, NotAfter: p.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, address := range addresses {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(address); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, address)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.cert, key.Public(), p.key)
	if err != nil {
		return err
	}
	issued, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	if err := p.writeCert(name+".crt", issued); err != nil {
		return err
	}
	return p.writeKey(name+".key", key)
}

func (p *pki) writeCert(name string, certificate *x509.Certificate) error {
	data, err := cert.EncodeCertificates(certificate)
	if err != nil {
		return err
	}
	return cert.WriteCert(p.path(name), data)
}

func (p *pki) writeKey(name string, key crypto.Signer) error {
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return keyutil.WriteKey(p.path(name), data)
}

// serviceAccountKey writes the key that signs service account tokens.
func (p *pki) serviceAccountKey() error {
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	return keyutil.WriteKey(p.path("service-account.key"), key)
}

// kubeconfig issues a client certificate and writes a kubeconfig with it.
func (p *pki) kubeconfig(path, server, user string, groups ...string) error {
	name := "client-" + filepath.Base(path)
	if err := p.issue(name, pkix.Name{CommonName: user, Organization: groups}); err != nil {
		return err
	}
	authority, err := cert.EncodeCertificates(p.cert)
	if err != nil {
		return err
	}
	certificate, err := os.ReadFile(p.path(name + ".crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(p.path(name + ".key"))
	if err != nil {
		return err
	}
	const cluster = "partitioned"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = cluster
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	return nil
}
