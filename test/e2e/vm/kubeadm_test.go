// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/kubernetes/cluster/host"
	"workload.openshift.io/kubernetes/cluster/image"
	"workload.openshift.io/kubernetes/cluster/vm"
	"workload.openshift.io/kubernetes/test/e2e/internal/fixture"
	"workload.openshift.io/partition"
)

var (
	kubeadmImages      = flag.String("kubeadm-images", "", "directory of the release's images and packages; may be empty")
	olderKubeadmImages = flag.String("older-kubeadm-images", "", "directory of those of the older release; may be empty")
	staticEtcd         = flag.String("static-etcd", "", "etcd that is linked statically, for an image; may be empty")
)

// kubeadmRelease is a release as users of kubeadm get it.
type kubeadmRelease struct {
	// dir is below /payload.
	dir string
	// version is the release and the series, and tag that of its images.
	version, tag string
}

// kubeadmPayload adds a release to a payload: kubeadm, the images' archives and the packages.
func kubeadmPayload(t *testing.T, payload map[string]string, name, bin, images string) kubeadmRelease {
	t.Helper()
	r := kubeadmRelease{dir: "kubeadm/" + name}
	payload[r.dir+"/kubeadm"] = filepath.Join(bin, "kubeadm")
	for _, pattern := range []string{"archives/*.tar", "packages/*.deb"} {
		files, err := filepath.Glob(filepath.Join(images, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("there is no %s in %s: %v", pattern, images, err)
		}
		for _, file := range files {
			payload[r.dir+"/"+filepath.Base(file)] = file
		}
	}
	sums, err := os.ReadFile(filepath.Join(bin, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(string(sums), "# "), ",")
	r.version, r.tag = first, strings.ReplaceAll(first, "+", "_")
	return r
}

// kubeadmNode is a VM that kubeadm makes a node.
type kubeadmNode struct{ *node }

const (
	patchDir = "/etc/kubernetes/patches"
	// dropIn is that of upstream's package of kubeadm (cmd/krel/templates/latest in
	// kubernetes/release), but for the controllers.
	dropIn = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
` + host.EnableControllers + `
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`
)

// install prepares the VM for kubeadm of a release, as an administrator would: a container runtime, the
// packages, the images of a release and those of others, the pinning file, and the patches of
// docs/user/installers.md.
func (n kubeadmNode) install(t *testing.T, r kubeadmRelease, pinning string) {
	t.Helper()
	if err := n.StartRuntime(t.Context(), host.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := n.Write(t.Context(), "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", []byte(dropIn)); err != nil {
		t.Fatal(err)
	}
	n.provide(t, r)
	n.run(t, "sysctl -qw net.ipv4.ip_forward=1 && systemctl is-enabled kubelet")
	n.writePinningFile(t, pinning)
	n.learn(t)
}

// provide gives the VM the packages and images of a release. Its kubelet does not restart. dpkg need not find
// kubernetes-cni: the CNI plugins are in /payload/tools.
func (n kubeadmNode) provide(t *testing.T, r kubeadmRelease) {
	t.Helper()
	n.run(t, fmt.Sprintf(`set -e
dir=/payload/%s
dpkg --install --force-depends $dir/kubelet_*.deb $dir/kubectl_*.deb >/dev/null
ln -sf $dir/kubeadm /usr/local/bin/kubeadm
ctr="/payload/tools/ctr --address %s/containerd.sock --namespace k8s.io images"
for archive in $dir/*.tar; do $ctr import $archive >/dev/null; done
names=$(kubeadm config images list --kubernetes-version %s --image-repository %s)
for name in $names; do
  case $name in
    */pause:*) $ctr tag --force %s $name ;;
    */coredns:*) $ctr tag --force %s $name ;;
    */etcd:*) $ctr tag --force %s $name ;;
  esac
done >/dev/null`, r.dir, host.DefaultPaths.Run, r.version, repository, image.Pause, corednsImage, etcdImage))
	n.writePatches(t, r)
}

const (
	repository   = "workload.openshift.io"
	corednsImage = repository + "/coredns:built"
	etcdImage    = repository + "/etcd:built"
)

// patchOnPage is a file of docs/user/installers.md, and what is in it.
var patchOnPage = regexp.MustCompile("(?s)`([a-z-]+\\+strategic\\.yaml)`[^\\n]*:\\n\\n```yaml\\n(.*?)```")

// writePatches writes the patches of docs/user/installers.md, with the image of a release.
func (n kubeadmNode) writePatches(t *testing.T, r kubeadmRelease) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/user/installers.md")
	if err != nil {
		t.Fatal(err)
	}
	found := patchOnPage.FindAllStringSubmatch(string(page), -1)
	if len(found) != 4 {
		t.Fatalf("docs/user/installers.md has %d patches, want 4", len(found))
	}
	for _, file := range found {
		content := regexp.MustCompile(`image: .*`).ReplaceAllString(file[2], "image: "+repository+"/kube-apiserver:"+r.tag)
		if err := n.Write(t.Context(), path.Join(patchDir, file[1]), []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
}

// timeouts are for kubeadm under emulation.
const timeouts = `timeouts: {controlPlaneComponentHealthCheck: 15m, kubeletHealthCheck: 10m, kubernetesAPICall: 5m, tlsBootstrap: 10m, discovery: 10m, upgradeManifests: 15m}`

// registration is how the VM becomes a node.
func (n kubeadmNode) registration() string {
	return fmt.Sprintf(`nodeRegistration:
  name: %s
  criSocket: unix://%s/containerd.sock
  imagePullPolicy: Never
  taints: []
  kubeletExtraArgs: [{name: node-ip, value: %s}]
patches: {directory: %s}
%s
`, n.Name(), host.DefaultPaths.Run, n.Address(), patchDir, timeouts)
}

// kubeadm runs kubeadm with a configuration, and prints its last lines if it fails.
func (n kubeadmNode) kubeadm(t *testing.T, command, configuration string) {
	t.Helper()
	begin := time.Now()
	if err := n.Write(t.Context(), "/root/kubeadm.yaml", []byte(configuration)); err != nil {
		t.Fatal(err)
	}
	n.run(t, "kubeadm "+command+" --config /root/kubeadm.yaml >/root/kubeadm.log 2>&1 || { tail -n 60 /root/kubeadm.log >&2; exit 1; }")
	t.Logf("kubeadm %s took %s", command, time.Since(begin).Round(time.Second))
}

// expectPartitionedControlPlane waits until the static pods that kubeadm has written run the images of a
// release, in their pool.
func (n kubeadmNode) expectPartitionedControlPlane(t *testing.T, r kubeadmRelease) {
	t.Helper()
	waitFor(t, 5*time.Minute, "the control plane of "+r.version+" runs, and is partitioned", func(ctx context.Context) error {
		list, err := n.client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: "tier=control-plane"})
		if err != nil {
			return err
		}
		if len(list.Items) != 4 {
			return fmt.Errorf("there are %d static pods, want 4", len(list.Items))
		}
		for _, p := range list.Items {
			if err := fixture.Running(&p); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			if _, is := partition.PartitionedType(&p); !is {
				return fmt.Errorf("%s is not partitioned: %v", p.Name, p.Annotations)
			}
			if used := p.Spec.Containers[0].Image; p.Labels["component"] != "etcd" && !strings.HasSuffix(used, ":"+r.tag) {
				return fmt.Errorf("%s runs %s, want the tag %s", p.Name, used, r.tag)
			}
		}
		return nil
	})
	n.expectPlaced(t)
}

// expectVersion waits until a node reports a kubelet of a release.
func (n kubeadmNode) expectVersion(t *testing.T, r kubeadmRelease) {
	t.Helper()
	waitFor(t, 5*time.Minute, n.Name()+" is Ready with "+r.version, func(ctx context.Context) error {
		object, err := n.client.CoreV1().Nodes().Get(ctx, n.Name(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if is := object.Status.NodeInfo.KubeletVersion; is != r.version {
			return fmt.Errorf("its kubelet is %s", is)
		}
		for _, condition := range object.Status.Conditions {
			if condition.Type == v1.NodeReady && condition.Status == v1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is not Ready")
	})
}

// What users without OpenShift do: kubeadm makes a cluster of this project's images and packages, with
// the control plane in its pool, a second node joins, and both are upgraded by a minor release.
func TestKubeadmMakesAndUpgradesAPartitionedCluster(t *testing.T) {
	if *kubeadmImages == "" || *olderKubeadmImages == "" {
		t.Skip("no images for kubeadm were given; make e2e-kubeadm builds them")
	}
	own := maps.Clone(payload)
	older := kubeadmPayload(t, own, "older", *olderBin, *olderKubeadmImages)
	newer := kubeadmPayload(t, own, "newer", files.Bin, *kubeadmImages)
	archives := t.TempDir()
	for reference, program := range map[string]string{corednsImage: filepath.Join(files.Tools, "coredns"), etcdImage: *staticEtcd} {
		if err := image.SaveProgram(archives, reference, program); err != nil {
			t.Fatal(err)
		}
		archive := filepath.Base(program) + ".tar"
		own["images/"+archive] = filepath.Join(archives, archive)
	}
	topology := vm.Topology{Sockets: 1, Cores: 4, Threads: 1}
	const pinning = `{"management": {"cpuset": "0-1"}}`
	first := kubeadmNode{&node{VM: boot(t, vm.Config{Payload: own, Topology: topology, Memory: 4096})}}
	first.install(t, older, pinning)
	// Before there is a control plane, whose probes could fail while another VM boots under emulation.
	second := kubeadmNode{&node{VM: boot(t, vm.Config{Number: 2, Payload: own, Topology: topology, Memory: 2048})}}
	second.install(t, older, pinning)
	first.kubeadm(t, "init", fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %s}
%s---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
imageRepository: %s
apiServer: {certSANs: [127.0.0.1]}
`, first.Address(), first.registration(), older.version, repository))
	first.run(t, "cp /etc/kubernetes/admin.conf "+host.Kubeconfig)
	if _, err := first.Kubeconfig(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	if first.client, err = first.Client(); err != nil {
		t.Fatal(err)
	}
	first.expectPartitionedControlPlane(t, older)

	// As docs/user/installers.md says.
	kubectl := "kubectl --kubeconfig /etc/kubernetes/admin.conf "
	first.run(t, kubectl+"annotate namespace kube-system "+partition.AllowedAnnotation+"=management")
	first.run(t, kubectl+`-n kube-system patch deployment coredns --patch '{"spec": {"template": {"metadata": {"annotations": {"`+partition.TargetAnnotation("management")+`": "", "`+mustBe+`": "management"}}}}}'`)
	first.run(t, kubectl+"-n kube-system rollout status deployment coredns --timeout=5m")

	second.client = first.client
	join := strings.Fields(first.run(t, "kubeadm token create --print-join-command 2>/dev/null"))
	if len(join) != 7 {
		t.Fatalf("the command to join is %q", join)
	}
	second.kubeadm(t, "join", fmt.Sprintf(`apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {bootstrapToken: {apiServerEndpoint: %q, token: %q, caCertHashes: [%q]}}
%s`, join[2], join[4], join[6], second.registration()))
	second.expectVersion(t, older)
	namespace := fixture.Namespace(t, first.client, "management")
	pods := func(prefix string) {
		t.Helper()
		for _, n := range []kubeadmNode{first, second} {
			p := fixture.Pod(prefix+"-"+n.Name(), asks, fixture.Container("c", fixture.Idle, "cpu=50m memory=16Mi", ""))
			p.Spec.NodeName = n.Name()
			created, err := first.client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, is := partition.PartitionedType(created); !is {
				t.Errorf("pod %s is not partitioned", created.Name)
			}
		}
		waitFor(t, 5*time.Minute, "the pods run", func(ctx context.Context) error {
			list, err := first.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			var not []error
			for _, p := range list.Items {
				if err := fixture.Running(&p); err != nil {
					not = append(not, fmt.Errorf("%s: %w", p.Name, err))
				}
			}
			return errors.Join(not...)
		})
		first.expectPlaced(t)
		second.expectPlaced(t)
	}
	pods("before")

	const upgradeConfiguration = `apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
apply: {imagePullPolicy: Never, patches: {directory: ` + patchDir + `}, etcdUpgrade: false, forceUpgrade: true}
node: {imagePullPolicy: Never, patches: {directory: ` + patchDir + `}, etcdUpgrade: false}
` + timeouts + "\n"
	first.provide(t, newer)
	first.kubeadm(t, "upgrade apply "+newer.version, upgradeConfiguration)
	first.run(t, "systemctl restart kubelet")
	first.expectVersion(t, newer)
	first.expectPartitionedControlPlane(t, newer)
	second.provide(t, newer)
	second.kubeadm(t, "upgrade node", upgradeConfiguration)
	second.run(t, "systemctl restart kubelet")
	second.expectVersion(t, newer)
	pods("after")
}
