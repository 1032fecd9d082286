// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"path"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	nodetopologyv1 "workload.openshift.io/operators/api/nodetopology/v1"
	"workload.openshift.io/operators/numaresources"
)

// groupLabel is on what belongs to a group, with the group's name.
const groupLabel = "nodetopology.openshift.io/group"

// account is the exporters' ServiceAccount, which the manifests make.
const account = "partition-topology"

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
	affinity, err := numaresources.Affinity(g.selectors, g.without)
	if err != nil {
		return nil, err
	}
	exporters := &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: meta,
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{groupLabel: g.name}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0))},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      map[string]string{groupLabel: g.name, "app.kubernetes.io/name": numaresources.Name, "app.kubernetes.io/component": "exporter"},
					Annotations: map[string]string{"target.workload.openshift.io/management": `{"effect": "PreferredDuringScheduling"}`},
				},
				Spec: r.pod(g, affinity),
			},
		},
	}
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

// pod is that of an exporter. It is root, since the kubelet's socket is root's; apart from that it has no privilege: no
// capability, no namespace of the host, no file that it could write. Of the host it sees the directory of the socket, and the
// kubelet's public certificate if the settings say so. The runtime shows it the host's /sys/devices/system, as it does to every
// container.
func (r *reconciler) pod(g *group, affinity *corev1.NodeSelector) corev1.PodSpec {
	const config, sockets, certificates, authorities = "/etc/partition-node", "/run/pod-resources", "/run/kubelet.crt", "/etc/kubelet-ca"
	args := []string{
		"topology", "--config=" + path.Join(config, numaresources.ConfigKey), "--podresources-socket=" + path.Join(sockets, "kubelet.sock"), "--kubelet-port=" + r.settings.port(),
	}
	mounts := []corev1.VolumeMount{
		{Name: "config", MountPath: config, ReadOnly: true},
		{Name: "pod-resources", MountPath: sockets, ReadOnly: true},
	}
	volumes := []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: objectName(g.name)}}}},
		{Name: "pod-resources", VolumeSource: hostPath(r.settings.PodResources, corev1.HostPathDirectory)},
	}
	if file := r.settings.KubeletCertificate; file != "" {
		args = append(args, "--kubelet-certificate="+certificates)
		mounts = append(mounts, corev1.VolumeMount{Name: "kubelet-certificate", MountPath: certificates, ReadOnly: true})
		volumes = append(volumes, corev1.Volume{Name: "kubelet-certificate", VolumeSource: hostPath(file, corev1.HostPathFile)})
	}
	if name := r.settings.KubeletCA; name != "" {
		args = append(args, "--kubelet-ca="+path.Join(authorities, "ca-bundle.crt"))
		mounts = append(mounts, corev1.VolumeMount{Name: "kubelet-ca", MountPath: authorities, ReadOnly: true})
		volumes = append(volumes, corev1.Volume{Name: "kubelet-ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}})
	}
	return corev1.PodSpec{
		ServiceAccountName:            account,
		PriorityClassName:             "system-node-critical",
		TerminationGracePeriodSeconds: ptr.To[int64](5),
		Tolerations:                   g.tolerations,
		Affinity:                      &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: affinity}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: ptr.To[int64](0), RunAsGroup: ptr.To[int64](0),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:            "topology",
			Image:           r.settings.ExporterImage,
			ImagePullPolicy: corev1.PullIfNotPresent,
			Args:            args,
			Env: []corev1.EnvVar{
				{Name: "HOST_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.hostIP"}}},
				{Name: "GOMEMLIMIT", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "requests.memory", Divisor: resource.MustParse("1")}}},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("30Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			},
			SecurityContext: unprivileged(),
			VolumeMounts:    mounts,
		}},
		Volumes: volumes,
	}
}

// unprivileged is of a container that writes no file and has no capability, whatever its user is.
func unprivileged() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
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
