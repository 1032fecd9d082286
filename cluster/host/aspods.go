// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/atomicfile"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/partition"
)

// writeControlPlanePods writes the manifests of the control plane's static pods.
func (c *Cluster) writeControlPlanePods() error {
	for _, p := range []Component{c.Etcd, c.APIServer, c.ControllerManager, c.Scheduler} {
		pod := c.asPod(p)
		if c.Config.ControlPlaneImages != "" && p != c.Etcd {
			reference, err := archivedImage(c.imageArchive(p.Name()))
			if err != nil {
				return err
			}
			c.inItsImage(pod, p, reference)
		}
		manifest, err := json.MarshalIndent(pod, "", "  ")
		if err != nil {
			return err
		}
		if err := atomicfile.Write(filepath.Join(c.Config.Paths.Manifests(), p.Name()+".json"), manifest, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// asPod returns the static pod that runs a component of the control plane, with the host's
// files at the same paths.
func (c *Cluster) asPod(p Component) *v1.Pod {
	pod := &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name(), Namespace: metav1.NamespaceSystem,
			Labels:      map[string]string{"tier": "control-plane", "component": p.Name()},
			Annotations: map[string]string{partition.TargetAnnotation(c.Config.ControlPlaneType): ""}},
		Spec: v1.PodSpec{
			HostNetwork: true, PriorityClassName: "system-node-critical",
			Containers: []v1.Container{{
				Name: p.Name(), Image: image.Busybox, ImagePullPolicy: v1.PullNever, Command: p.Args(),
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("64Mi")}},
			}},
		},
	}
	// Not every binary is static, so the pod has the host's libraries, too.
	paths := []string{c.Config.Paths.Data, c.Config.Tools, "/lib", "/lib64", "/usr/lib"}
	if program := filepath.Dir(p.Args()[0]); program != c.Config.Tools {
		paths = append(paths, program)
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		name := "path" + string(rune('0'+len(pod.Spec.Volumes)))
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name, MountPath: path})
	}
	return pod
}

// inItsImage has a pod run an image that has the component's program where upstream's has it. Of the
// host it has the cluster's files alone.
func (c *Cluster) inItsImage(pod *v1.Pod, p Component, reference string) {
	container := &pod.Spec.Containers[0]
	container.Image = reference
	container.Command = append([]string{p.Name()}, p.Args()[1:]...)
	pod.Spec.Volumes, container.VolumeMounts = pod.Spec.Volumes[:1], container.VolumeMounts[:1]
}

// imageArchive is the archive of a component's image in Config.ControlPlaneImages.
func (c *Cluster) imageArchive(component string) string {
	return filepath.Join(c.Config.ControlPlaneImages, "archives", component+"-"+runtime.GOOS+"-"+runtime.GOARCH+".tar")
}

// archivedImage returns the reference of the image in an archive.
func archivedImage(archive string) (string, error) {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(archive) })
	if err != nil {
		return "", fmt.Errorf("image archive %s: %w; make control-plane-images writes it", archive, err)
	}
	if len(manifest) != 1 || len(manifest[0].RepoTags) != 1 {
		return "", fmt.Errorf("image archive %s has %d images, want one with one name", archive, len(manifest))
	}
	return manifest[0].RepoTags[0], nil
}
