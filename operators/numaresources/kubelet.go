// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Names of attributes of a NodeResourceTopology. The first two are those that the scheduler's plugin reads.
const (
	AttributePolicy        = "topologyManagerPolicy"
	AttributeScope         = "topologyManagerScope"
	AttributeCPUManager    = "cpuManagerPolicy"
	AttributeMemoryManager = "memoryManagerPolicy"
	// AttributePolicyUnknown says by a [PolicyUnknown] why none of the others is there.
	AttributePolicyUnknown = "policyUnknown"
	// AttributeCPUDriver names the DRA driver for which the zones offer no CPU.
	AttributeCPUDriver = "cpuDriver"
	// AttributeStarted is when the kubelet started, in RFC 3339.
	AttributeStarted = "kubeletStarted"
)

// PolicyUnknown is a code that says why it is not known how a kubelet runs. Empty means that it is known.
type PolicyUnknown string

// The codes of PolicyUnknown.
const (
	// KubeletUnreachable: no connection, or no answer.
	KubeletUnreachable PolicyUnknown = "KubeletUnreachable"
	// CertificateNotVerified: neither the configured CA nor the cluster's vouch for the kubelet's certificate, and it is not
	// the one in the kubelet's file.
	CertificateNotVerified PolicyUnknown = "CertificateNotVerified"
	// ConfigzForbidden: the kubelet does not let the exporter read it.
	ConfigzForbidden PolicyUnknown = "ConfigzForbidden"
	// ConfigzNotServed: the kubelet has no configz, as with enableDebuggingHandlers: false.
	ConfigzNotServed PolicyUnknown = "ConfigzNotServed"
	// ConfigzInvalid: the answer cannot be read.
	ConfigzInvalid PolicyUnknown = "ConfigzInvalid"
)

// Kubelet is how a kubelet runs, by its own account.
type Kubelet struct {
	// Unknown says why the rest is empty.
	Unknown PolicyUnknown
	// The policies are those of the kubelet's configuration, such as single-numa-node.
	TopologyManagerPolicy, TopologyManagerScope, CPUManagerPolicy, MemoryManagerPolicy string
}

// ParseConfigz reads what a kubelet's /configz answers. The kubelet has filled in its defaults, so a policy or a scope
// that is missing is an error.
func ParseConfigz(data []byte) (Kubelet, error) {
	var answer struct {
		Configuration *kubeletv1beta1.KubeletConfiguration `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return Kubelet{}, err
	}
	c := answer.Configuration
	if c == nil {
		return Kubelet{}, fmt.Errorf("it has no kubeletconfig")
	}
	for field, value := range map[string]string{
		"topologyManagerPolicy": c.TopologyManagerPolicy, "topologyManagerScope": c.TopologyManagerScope,
		"cpuManagerPolicy": c.CPUManagerPolicy, "memoryManagerPolicy": c.MemoryManagerPolicy,
	} {
		if value == "" {
			return Kubelet{}, fmt.Errorf("kubeletconfig.%s is empty", field)
		}
	}
	return Kubelet{
		TopologyManagerPolicy: c.TopologyManagerPolicy, TopologyManagerScope: c.TopologyManagerScope,
		CPUManagerPolicy: c.CPUManagerPolicy, MemoryManagerPolicy: c.MemoryManagerPolicy,
	}, nil
}

func (k Kubelet) attributes() v1alpha2.AttributeList {
	if k.Unknown != "" {
		return v1alpha2.AttributeList{{Name: AttributePolicyUnknown, Value: string(k.Unknown)}}
	}
	return v1alpha2.AttributeList{
		{Name: AttributePolicy, Value: k.TopologyManagerPolicy},
		{Name: AttributeScope, Value: k.TopologyManagerScope},
		{Name: AttributeCPUManager, Value: k.CPUManagerPolicy},
		{Name: AttributeMemoryManager, Value: k.MemoryManagerPolicy},
	}
}

// CPUDriverOf reads from a node's NodeResourceTopology which DRA driver gives its CPUs; empty if none does.
func CPUDriverOf(attributes v1alpha2.AttributeList) string {
	return valueOf(attributes, AttributeCPUDriver)
}

// StartedOf reads from a node's NodeResourceTopology when its kubelet started; zero if that is not known.
func StartedOf(attributes v1alpha2.AttributeList) time.Time {
	at, _ := time.Parse(time.RFC3339, valueOf(attributes, AttributeStarted))
	return at
}

// valueOf returns the value of the first attribute of that name; empty if there is none.
func valueOf(attributes v1alpha2.AttributeList, name string) string {
	for _, attribute := range attributes {
		if attribute.Name == name {
			return attribute.Value
		}
	}
	return ""
}

// KubeletOf reads how a node's kubelet runs from its NodeResourceTopology. known is false if another exporter wrote that, or
// if it says nothing of it.
func KubeletOf(attributes v1alpha2.AttributeList) (k Kubelet, known bool) {
	for _, attribute := range attributes {
		switch attribute.Name {
		case AttributePolicyUnknown:
			return Kubelet{Unknown: PolicyUnknown(attribute.Value)}, false
		case AttributePolicy:
			k.TopologyManagerPolicy = attribute.Value
		case AttributeScope:
			k.TopologyManagerScope = attribute.Value
		case AttributeCPUManager:
			k.CPUManagerPolicy = attribute.Value
		case AttributeMemoryManager:
			k.MemoryManagerPolicy = attribute.Value
		}
	}
	return k, k.TopologyManagerPolicy != ""
}
