// SPDX-License-Identifier: Apache-2.0

// Package kubeletclient reads a kubelet's own Node and the pods on it from kube-apiserver, with the
// kubelet's credentials: two plain GETs, which the node authorizer allows every kubelet. It needs no
// client-go.
package kubeletclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// kubeconfig is what is understood of a kubeconfig (k8s.io/client-go/tools/clientcmd/api/v1). Fields that
// would change how the API is reached and are not supported are errors.
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster struct {
			Server        string
			Authority     string `json:"certificate-authority"`
			AuthorityData []byte `json:"certificate-authority-data"`
			ServerName    string `json:"tls-server-name"`
			Insecure      bool   `json:"insecure-skip-tls-verify"`
			Proxy         string `json:"proxy-url"`
		}
	}
	Users []struct {
		Name string
		User struct {
			Certificate     string `json:"client-certificate"`
			CertificateData []byte `json:"client-certificate-data"`
			Key             string `json:"client-key"`
			KeyData         []byte `json:"client-key-data"`
			Token           string
			TokenFile       string          `json:"tokenFile"`
			Exec            json.RawMessage `json:"exec"`
			AuthProvider    json.RawMessage `json:"auth-provider"`
		}
	}
}

// Client reads one Node and its pods. The zero value is of no use; see [New].
type Client struct {
	server *url.URL
	node   string
	token  string
	http   *http.Client
}

// timeout is how long an answer may take, and maxAnswer how many bytes it may have.
const (
	timeout   = 5 * time.Second
	maxAnswer = 64 << 20
)

// New reads a kubelet's kubeconfig. read reads a file of the host, by its path there. node is the name of
// the Node; if it is empty, the kubelet's certificate says it (system:node:NAME). An error names the file,
// and says what is missing or not supported: credentials that a program issues, a proxy, and a server that
// is not verified are not.
func New(path, node string, read func(path string) ([]byte, error)) (*Client, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	c, err := parse(data, node, func(given []byte, file string) ([]byte, error) {
		if len(given) > 0 || file == "" {
			return given, nil
		}
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(path), file)
		}
		return read(file)
	})
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s of the kubelet: %w", path, err)
	}
	return c, nil
}

// parse reads a kubeconfig. content returns what is given in it, or else that of a file.
func parse(data []byte, node string, content func(given []byte, file string) ([]byte, error)) (*Client, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(data, &k); err != nil {
		return nil, err
	}
	inContext, inClusters, inUsers := -1, -1, -1
	for i := range k.Contexts {
		if k.Contexts[i].Name == k.CurrentContext {
			inContext = i
		}
	}
	if inContext < 0 {
		return nil, fmt.Errorf("it has no context %q", k.CurrentContext)
	}
	current := k.Contexts[inContext].Context
	for i := range k.Clusters {
		if k.Clusters[i].Name == current.Cluster {
			inClusters = i
		}
	}
	for i := range k.Users {
		if k.Users[i].Name == current.User {
			inUsers = i
		}
	}
	if inClusters < 0 || inUsers < 0 {
		return nil, fmt.Errorf("it has no cluster %q or no user %q", current.Cluster, current.User)
	}
	cluster, user := k.Clusters[inClusters].Cluster, k.Users[inUsers].User
	server, err := url.Parse(cluster.Server)
	switch {
	case err != nil:
		return nil, err
	case server.Scheme != "https":
		return nil, fmt.Errorf("server %q is not https", cluster.Server)
	case cluster.Insecure, cluster.Proxy != "":
		return nil, errors.New("insecure-skip-tls-verify and proxy-url are not supported")
	case len(user.Exec) > 0, len(user.AuthProvider) > 0:
		return nil, errors.New("credentials of a program (exec, auth-provider) are not supported")
	}
	config := &tls.Config{ServerName: cluster.ServerName, MinVersion: tls.VersionTLS12}
	authority, err := content(cluster.AuthorityData, cluster.Authority)
	if err != nil {
		return nil, err
	}
	if len(authority) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authority) {
			return nil, errors.New("its certificate-authority has no certificate")
		}
	}
	certificate, err := content(user.CertificateData, user.Certificate)
	if err != nil {
		return nil, err
	}
	if len(certificate) > 0 {
		key, err := content(user.KeyData, user.Key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
		if leaf := pair.Leaf; leaf != nil {
			if name, found := strings.CutPrefix(leaf.Subject.CommonName, "system:node:"); found {
				node = name // a flag may have been written in another case
			}
		}
	}
	token, err := content([]byte(user.Token), user.TokenFile)
	if err != nil {
		return nil, err
	}
	if node == "" {
		return nil, errors.New("it does not say the name of the Node")
	}
	return &Client{server: server, node: node, token: strings.TrimSpace(string(token)), http: &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       timeout,
	}}, nil
}

// Node returns the Node as it is now.
func (c *Client) Node(ctx context.Context) (*v1.Node, error) {
	var node v1.Node
	if err := c.get(ctx, "/api/v1/nodes/"+url.PathEscape(c.node), "", &node); err != nil {
		return nil, err
	}
	return &node, nil
}

// Pods returns the pods of the Node that have not ended.
func (c *Client) Pods(ctx context.Context) ([]v1.Pod, error) {
	var pods []v1.Pod
	query := url.Values{"fieldSelector": {"spec.nodeName=" + c.node + ",status.phase!=Succeeded,status.phase!=Failed"}, "limit": {"100"}}
	for {
		var list v1.PodList
		if err := c.get(ctx, "/api/v1/pods", query.Encode(), &list); err != nil {
			return nil, err
		}
		pods = append(pods, list.Items...)
		if list.Continue == "" {
			return pods, nil
		}
		query.Set("continue", list.Continue)
	}
}

func (c *Client) get(ctx context.Context, path, query string, into any) error {
	at := *c.server
	at.Path, at.RawQuery = strings.TrimSuffix(at.Path, "/")+path, query
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %.200s", path, response.Status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}
