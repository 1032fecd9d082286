// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"
	"unicode"
)

// NoProxy returns the content of NO_PROXY, and of no_proxy, with which clients reach the cluster
// although their environment has a proxy: what is in either, and what is the cluster's. Without a
// proxy it is empty. Programs disagree on which of the two comes first, so both have the same.
func (c *Cluster) NoProxy() string {
	if cmp.Or(os.Getenv("HTTPS_PROXY"), os.Getenv("https_proxy")) == "" {
		return ""
	}
	entries := strings.FieldsFunc(os.Getenv("NO_PROXY")+","+os.Getenv("no_proxy"), func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	// kube-apiserver calls webhooks by the names of their Services.
	entries = append(entries, c.Config.Node.Address, c.Config.Node.PodNet, c.Config.Network.Services, ".svc")
	var once []string
	for _, entry := range entries {
		if !slices.Contains(once, entry) {
			once = append(once, entry)
		}
	}
	return strings.Join(once, ",")
}

// bypassProxy has this process, and those that it starts, reach the cluster without a proxy. It
// must come before the first request: net/http reads the environment once.
func (c *Cluster) bypassProxy() error {
	list := c.NoProxy()
	if list == "" {
		return nil
	}
	return errors.Join(os.Setenv("NO_PROXY", list), os.Setenv("no_proxy", list))
}
