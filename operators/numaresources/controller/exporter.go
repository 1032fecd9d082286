// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	_ "embed"
	"path"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/numaresources"
)

// groupLabel is on what belongs to a group, with the group's name.
const groupLabel = "nodetopology.openshift.io/group"

// exporterDaemonSet is a group's, but for what the group and the settings say. Its ServiceAccount is in the manifests.
//
//go:embed exporter.yaml
var exporterDaemonSet []byte

// kinds are what a group has, in the order in which it is made.
var kinds = []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap"), appsv1.SchemeGroupVersion.WithKind("DaemonSet")}

// objectName is the name of a group's ConfigMap and DaemonSet.
func objectName(group string) string { return nodetopologyv1.NUMAResourcesOperatorName + "-" + group }

// operands are the objects of a group.
func (r *reconciler) operands(owner *nodetopologyv1.NUMAResourcesOperator, g *group) ([]*unstructured.Unstructured, error) {
	meta := metav1.ObjectMeta{
		Namespace: r.settings.ExporterNamespace,
		Name:      objectName(g.name),
		Labels:    map[string]string{groupLabel: g.name},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, nodetopologyv1.GroupVersion.WithKind("NUMAResourcesOperator")),
		},
	}
	config := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: meta,
		Data:       map[string]string{numaresources.ConfigKey: g.config.String()},
	}
	exporters := &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict(exporterDaemonSet, exporters); err != nil {
		return nil, err
	}
	affinity, err := numaresources.Affinity(g.selectors, g.without)
	if err != nil {
		return nil, err
	}
	exporters.ObjectMeta = meta
	exporters.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{groupLabel: g.name}}
	metav1.SetMetaDataLabel(&exporters.Spec.Template.ObjectMeta, groupLabel, g.name)
	pod := &exporters.Spec.Template.Spec
	pod.Tolerations = g.tolerations
	pod.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: affinity}}
	r.complete(pod, g)
	return unstructuredOf(config, exporters)
}

// unstructuredOf returns objects as they are applied: without fields that are not the writer's.
func unstructuredOf(objects ...any) (list []*unstructured.Unstructured, err error) {
	for _, object := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{Object: content}
		unstructured.RemoveNestedField(u.Object, "status")
		for _, at := range [][]string{{"metadata"}, {"spec", "template", "metadata"}} {
			unstructured.RemoveNestedField(u.Object, append(at, "creationTimestamp")...)
		}
		list = append(list, u)
	}
	return list, nil
}

// complete gives an exporter's pod what is the settings' to choose: its image, and what it sees of the host and of ConfigMaps.
func (r *reconciler) complete(pod *corev1.PodSpec, g *group) {
	container := &pod.Containers[0]
	container.Image = r.settings.ExporterImage
	container.Args = append(container.Args, "--kubelet-port="+r.settings.port())
	mount := func(name, at string, source corev1.VolumeSource) {
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: true})
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
	mount("config", "/etc/partition-node", configMap(objectName(g.name)))
	mount("pod-resources", "/run/pod-resources", hostPath(r.settings.PodResources, corev1.HostPathDirectory))
	if file := r.settings.KubeletCertificate; file != "" {
		const at = "/run/kubelet.crt"
		container.Args = append(container.Args, "--kubelet-certificate="+at)
		mount("kubelet-certificate", at, hostPath(file, corev1.HostPathFile))
	}
	if name := r.settings.KubeletCA; name != "" {
		const at = "/etc/kubelet-ca"
		container.Args = append(container.Args, "--kubelet-ca="+path.Join(at, "ca-bundle.crt"))
		mount("kubelet-ca", at, configMap(name))
	}
}

func configMap(name string) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
}

func hostPath(at string, kind corev1.HostPathType) corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: at, Type: &kind}}
}

// exporterConfiguration is what a group's exporters are told.
func exporterConfiguration(config *nodetopologyv1.NodeGroupConfig) numaresources.ExporterConfiguration {
	c := numaresources.DefaultExporterConfiguration()
	if config == nil {
		return c
	}
	c.RefreshMode = cmp.Or(numaresources.RefreshMode(ptr.Deref(config.InfoRefreshMode, "")), c.RefreshMode)
	c.Fingerprint = cmp.Or(numaresources.Fingerprint(ptr.Deref(config.PodsFingerprinting, "")), c.Fingerprint)
	if config.InfoRefreshPeriod != nil {
		c.RefreshPeriod = *config.InfoRefreshPeriod
	}
	c.Paused = ptr.Deref(config.InfoRefreshPause, "") == nodetopologyv1.InfoRefreshPauseEnabled
	return c
}
