// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"workload.openshift.io/kubernetes/node/nodefiles"
	"workload.openshift.io/kubernetes/openshift-kube-apiserver/admission/partitioning/config"
)

// Where a control plane's node has kube-apiserver's configuration.
const (
	AdmissionPath = admissionDirectory + "/configuration.yaml"

	admissionDirectory = "/etc/kubernetes/admission"
)

// AdmissionConfiguration returns the file for kube-apiserver's flag
// --admission-control-config-file. With it the types are active before there is a node.
func AdmissionConfiguration(types []string) (nodefiles.File, error) {
	meant := config.Configuration{Activation: config.Activation{Source: config.SourceTypes, Types: types}}
	meant.APIVersion, meant.Kind = config.APIVersion, config.Kind
	raw, err := json.Marshal(meant)
	if err != nil {
		return nodefiles.File{}, err
	}
	all := apiserverv1.AdmissionConfiguration{Plugins: []apiserverv1.AdmissionPluginConfiguration{{
		Name:          config.PluginName,
		Configuration: &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON},
	}}}
	all.APIVersion, all.Kind = apiserverv1.SchemeGroupVersion.String(), "AdmissionConfiguration"
	file, err := nodefiles.WriteYAML(AdmissionPath, 0o644, "", all)
	if err != nil {
		return nodefiles.File{}, err
	}
	var again apiserverv1.AdmissionConfiguration
	if err := file.DecodeYAML(&again); err != nil {
		return nodefiles.File{}, err
	}
	if len(again.Plugins) != 1 || again.Plugins[0].Configuration == nil {
		return nodefiles.File{}, file.MustEqual(all, again)
	}
	plugin, err := config.Read(bytes.NewReader(again.Plugins[0].Configuration.Raw))
	if err != nil {
		return nodefiles.File{}, fmt.Errorf("%s: %w", file.Path, err)
	}
	if err := file.MustEqual(meant, plugin); err != nil {
		return nodefiles.File{}, err
	}
	again.Plugins[0].Configuration = all.Plugins[0].Configuration // compared above
	return file, file.MustEqual(all, again)
}
