// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"workload.openshift.io/kubernetes/cmd/images/debian"
	"workload.openshift.io/kubernetes/cmd/images/internal/gobinary"
	"workload.openshift.io/kubernetes/cmd/images/oci"
	"workload.openshift.io/kubernetes/cmd/images/rootfs"
)

// kubernetes are the binaries that a release consists of.
var kubernetes = []string{"kube-apiserver", "kube-controller-manager", "kube-log-runner", "kube-proxy", "kube-scheduler", "kubectl", "kubectl-partition", "kubelet", "partition-agent", "partition-controller", "partition-node", "topo-aware-scheduler"}

// options are those of a release whose bases are one small package.
func options(t *testing.T) Options {
	t.Helper()
	store := &debian.Store{Dir: t.TempDir(), Mirrors: []string{"copy:///nowhere"}}
	lock := &debian.Lock{Suite: "bookworm", Bases: map[string]*debian.Base{}}
	for _, name := range []string{"hyperkube", "kube-proxy", "must-gather", "tuned"} {
		packages := map[string][]debian.Package{}
		for _, platform := range gobinary.Platforms {
			files := rootfs.New()
			files.File("usr/bin/tool", 0o755, []byte(platform))
			var deb bytes.Buffer
			architecture := strings.TrimPrefix(platform, "linux/")
			d := &debian.Deb{Name: "tool", Version: "1:1.0+a-1", Architecture: architecture, Files: files, Date: time.Unix(0, 0)}
			if err := d.Write(&deb); err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(deb.Bytes())
			p := debian.Package{Name: "tool", Version: "1:1.0+a-1", Architecture: architecture, SHA256: hex.EncodeToString(sum[:]), Path: "pool/tool.deb"}
			gobinary.Write(t, filepath.Join(store.Dir, p.SHA256+".deb"), deb.Bytes())
			packages[platform] = []debian.Package{p}
		}
		lock.Bases[name] = &debian.Base{Packages: packages}
	}
	return Options{
		Dir: filepath.Join(t.TempDir(), "images"), Images: Images("v1.37.0"), Packages: Packages(), Binaries: gobinary.Dirs(t, kubernetes...),
		Release: "v1.37.0", Version: gobinary.Version, Repository: "workload.openshift.io", Lock: lock, Store: store, Say: t.Logf,
	}
}

// shared is a release of both platforms that several tests look at, and none changes.
var shared struct {
	sync.Once
	options Options
}

func full(t *testing.T) Options {
	t.Helper()
	shared.Do(func() {
		shared.options = options(t)
		dir, err := os.MkdirTemp("", "release-")
		if err != nil {
			t.Fatal(err)
		}
		shared.options.Dir = filepath.Join(dir, "images")
		write(t, shared.options)
	})
	return shared.options
}

func TestMain(m *testing.M) {
	os.Setenv("APT_CONFIG", "../debian/testdata/apt.conf")
	code := m.Run()
	if shared.options.Dir != "" {
		os.RemoveAll(filepath.Dir(shared.options.Dir))
	}
	os.Exit(code)
}

func write(t *testing.T, o Options) {
	t.Helper()
	if err := Write(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func TestTheSameBinariesGiveTheSameBytes(t *testing.T) {
	first := full(t)
	second := options(t)
	second.Dir = filepath.Join(t.TempDir(), "elsewhere", "images")
	write(t, second)
	var files [2]map[string]string
	for i, dir := range []string{first.Dir, second.Dir} {
		var err error
		if files[i], err = hashFiles(dir); err != nil {
			t.Fatal(err)
		}
	}
	if !maps.Equal(files[0], files[1]) {
		t.Errorf("two directories of the same binaries differ: %v, %v", files[0], files[1])
	}
	for _, name := range []string{
		"archives/hyperkube-linux-arm64.tar", "images.txt", "layout/index.json", "packages/kubectl-linux-amd64.tar.gz",
		"packages/kubelet_1.37.0+wp.20260826T104420.1234567-1_arm64.deb", "provenance/kube-proxy.intoto.json", "sbom/kube-proxy-linux-amd64.cdx.json",
		"sbom/kube-proxy-linux-amd64.spdx.json",
	} {
		if files[0][name] == "" {
			t.Errorf("there is no %s in %v", name, slices.Sorted(maps.Keys(files[0])))
		}
	}
}

// TestPackagesAreOrderedAsTheyWereMade asks dpkg, since it is the one that has to know what is newer.
func TestPackagesAreOrderedAsTheyWereMade(t *testing.T) {
	monday := time.Date(2026, 11, 23, 23, 30, 0, 0, time.UTC)
	tuesday := time.Date(2026, 11, 24, 0, 15, 0, 0, time.FixedZone("west", -3600)) // 01:15 UTC
	ordered := []string{
		debVersion("v1.38.0-alpha.2+wp.f234567", tuesday),
		debVersion("v1.38.0-beta.0+wp.e234567", tuesday),
		debVersion("v1.38.0-rc.1+wp.d234567", tuesday),
		"1.38.0-1.1", // upstream's
		debVersion("v1.38.0+wp.c234567", monday),
		debVersion("v1.38.0+wp.1234567", tuesday),
		debVersion("v1.38.0+wp.1234567", tuesday.Add(time.Second)),
		debVersion("v1.38.0+wp.1234567-fips", tuesday.Add(time.Second)),
		"1.38.1-1.1",
		debVersion("v1.38.1+wp.1234567", monday),
	}
	if want := "1.38.0+wp.20261124T011500.1234567-1"; ordered[5] != want {
		t.Errorf("the version is %s, want %s", ordered[5], want)
	}
	for i, older := range ordered[:len(ordered)-1] {
		if out, err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", older, "lt", ordered[i+1]).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("to dpkg, %s is not older than %s: %v %s", older, ordered[i+1], err, out)
		}
	}
	if got, want := debVersion("v1.38.0", monday), "1.38.0+20261123T233000-1"; got != want {
		t.Errorf("the version of binaries without a build is %s, want %s", got, want)
	}
}

// The commit of a release's binaries is that of the patches.
func TestThisProjectsCommitDatesPackages(t *testing.T) {
	o := native(t)
	o.Images, o.Commit, o.Date = nil, strings.Repeat("1234567890", 4), time.Date(2026, 11, 23, 10, 44, 20, 0, time.UTC)
	write(t, o)
	want := "kubectl_1.37.0+wp.20261123T104420.1234567-1_" + runtime.GOARCH + ".deb"
	if _, err := os.Stat(filepath.Join(o.Dir, packagesDir, want)); err != nil {
		t.Error(err)
	}
}

func TestTheKubeletsUnitIsEnabledOnceAndDisabledOnRemoval(t *testing.T) {
	packages := Packages()
	kubelet := packages[slices.IndexFunc(packages, func(p Package) bool { return p.Name == "kubelet" })]
	for _, test := range []struct {
		name, script, want string
		args               []string
	}{
		{"the first installation", "postinst", "preset kubelet.service", []string{"configure", ""}},
		{"an upgrade", "postinst", "", []string{"configure", "1.36.5-1.1"}},
		{"an upgrade that fails", "postinst", "", []string{"abort-upgrade", "1.36.5-1.1"}},
		{"the old version in an upgrade", "prerm", "", []string{"upgrade", "1.37.0-1.1"}},
		{"a removal", "prerm", "disable kubelet.service", []string{"remove"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			// It records how it is called, and fails as it would for a masked unit, or one that does not load.
			gobinary.Write(t, filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\necho \"$@\"\nexit 1\n"))
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			out, err := exec.CommandContext(t.Context(), "sh", append([]string{"-c", kubelet.Scripts[test.script], test.script}, test.args...)...).CombinedOutput()
			// With a running systemd, there are more.
			asked := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(out)), "\n"), func(line string) bool {
				return line == "daemon-reload" || line == "stop kubelet.service"
			})
			if err != nil || strings.Join(asked, "\n") != test.want {
				t.Errorf("systemctl is called with %q (%v), want %q", asked, err, test.want)
			}
		})
	}
}

// imagesOf returns the images of a directory by name and platform.
func imagesOf(t *testing.T, dir string) map[string]v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(filepath.Join(dir, Layout))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]v1.Image{}
	for _, named := range manifest.Manifests {
		below, err := index.ImageIndex(named.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(below); err != nil {
			t.Errorf("image %s: %v", named.Annotations[oci.RefName], err)
		}
		platforms, err := below.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		for _, descriptor := range platforms.Manifests {
			image, err := below.Image(descriptor.Digest)
			if err != nil {
				t.Fatal(err)
			}
			found[named.Annotations[oci.RefName]+" "+descriptor.Platform.String()] = image
		}
	}
	return found
}

func config(t *testing.T, image v1.Image) *v1.ConfigFile {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestImagesAreLaidOutAsTheirUsersExpect(t *testing.T) {
	o := full(t)
	images := imagesOf(t, o.Dir)
	if len(images) != 2*len(o.Images) {
		t.Errorf("there are %d images, want %d of two platforms", len(images), len(o.Images))
	}
	for _, test := range []struct {
		image, entrypoint, user string
		layers                  int
		labels                  map[string]string
	}{
		{"kube-apiserver", "/go-runner", "0", 1, map[string]string{"org.opencontainers.image.version": gobinary.Version, "workload.openshift.io/release": "v1.37.0", "org.opencontainers.image.source": "https://example.com/program"}},
		{"kube-proxy", "/go-runner", "0", 2, nil},
		{"kubectl", "/bin/kubectl", "0", 1, nil},
		{"hyperkube", "", "0", 2, map[string]string{"io.openshift.build.versions": "kubernetes=1.37.0", "io.k8s.display-name": "OpenShift Kubernetes Server Commands", "io.openshift.tags": "openshift,hyperkube"}},
		{"kubectl-partition", "/usr/bin/kubectl-partition", "65532", 1, nil},
		{"partition-agent", "/usr/bin/partition-agent", "65532", 1, nil},
		{"partition-node", "/usr/bin/partition-node", "65532", 1, nil},
		{"topo-aware-scheduler", "/usr/bin/topo-aware-scheduler", "65532", 1, nil},
		{"partition-tuned", "/usr/bin/partition-node", "0", 2, nil},
		{"partition-must-gather", "/usr/bin/gather", "0", 2, nil},
	} {
		for _, platform := range gobinary.Platforms {
			image := images[test.image+":v1.37.0_wp.1234567 "+platform]
			if image == nil {
				t.Fatalf("there is no image %s for %s", test.image, platform)
			}
			file := config(t, image)
			if got := strings.Join(file.Config.Entrypoint, " "); got != test.entrypoint || file.Config.User != test.user || len(file.RootFS.DiffIDs) != test.layers {
				t.Errorf("%s for %s has entrypoint %q, user %q and %d layers, want %q, %q and %d", test.image, platform, got, file.Config.User, len(file.RootFS.DiffIDs), test.entrypoint, test.user, test.layers)
			}
			if file.OS+"/"+file.Architecture != platform || !slices.Equal(file.Config.Env, []string{"PATH=" + searchPath}) || file.Created.Format(time.RFC3339) != "2026-08-26T10:44:20Z" {
				t.Errorf("%s is for %s/%s with environment %q, of %s", test.image, file.OS, file.Architecture, file.Config.Env, file.Created)
			}
			for key, want := range test.labels {
				if got := file.Config.Labels[key]; got != want {
					t.Errorf("%s has label %s=%q, want %q", test.image, key, got, want)
				}
			}
			if got := file.Config.Labels["org.opencontainers.image.revision"]; len(got) != 40 {
				t.Errorf("%s has revision %q, want a commit", test.image, got)
			}
		}
	}
	archive, err := tarball.ImageFromPath(filepath.Join(o.Dir, "archives", "kube-apiserver-linux-amd64.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := archive.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	if want, err := images["kube-apiserver:v1.37.0_wp.1234567 linux/amd64"].ConfigName(); err != nil || got != want {
		t.Errorf("the archive has image %s, and the layout %s (%v)", got, want, err)
	}
}

func TestBillsOfMaterialsNameProgramsModulesAndPackages(t *testing.T) {
	o := full(t)
	data, err := os.ReadFile(filepath.Join(o.Dir, "sbom", "kube-proxy-linux-arm64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	bom := cdx.BOM{}
	if err := cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, component := range *bom.Components {
		refs = append(refs, component.BOMRef)
		if component.Version == "" {
			t.Errorf("component %s has no version", component.BOMRef)
		}
	}
	for _, want := range []string{"program/kube-proxy", "program/kube-log-runner", "pkg:golang/example.com/program@v1.37.0%2Bwp.1234567", "os/debian@12", "pkg:deb/debian/tool@1%3A1.0%2Ba-1?arch=arm64&distro=debian-12"} {
		if !slices.Contains(refs, want) {
			t.Errorf("the bill of materials has %v, want %s", refs, want)
		}
	}
	data, err = os.ReadFile(filepath.Join(o.Dir, "provenance", "kube-proxy.intoto.json"))
	if err != nil {
		t.Fatal(err)
	}
	var statement struct {
		Subject   []struct{ Name string }
		Predicate struct {
			BuildDefinition struct{ ResolvedDependencies []struct{ Name string } }
		}
	}
	if err := json.Unmarshal(data, &statement); err != nil {
		t.Fatal(err)
	}
	if got := len(statement.Subject); got != 3 || statement.Subject[0].Name != "workload.openshift.io/kube-proxy" {
		t.Errorf("the provenance is of %v, want the index and two platforms", statement.Subject)
	}
	// The source, and for each platform two programs and a package.
	if got := len(statement.Predicate.BuildDefinition.ResolvedDependencies); got != 7 {
		t.Errorf("the provenance has %v, want 7 materials", statement.Predicate.BuildDefinition.ResolvedDependencies)
	}
}

// keys writes a private and a public key.
func keys(t *testing.T, private, public any) (privateFile, publicFile string) {
	t.Helper()
	dir := t.TempDir()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	privateFile, publicFile = filepath.Join(dir, "key"), filepath.Join(dir, "key.pub")
	gobinary.Write(t, privateFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if der, err = x509.MarshalPKIXPublicKey(public); err != nil {
		t.Fatal(err)
	}
	gobinary.Write(t, publicFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	return privateFile, publicFile
}

func TestASignedReleaseVerifiesAndAChangedOneDoesNot(t *testing.T) {
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name            string
		private, public any
		// openssl is the command that docs/user/images.md has.
		openssl string
	}{
		{"ECDSA", ecdsaKey, &ecdsaKey.PublicKey, `openssl dgst -sha256 -verify "$KEY" -signature <(base64 --decode SHA256SUMS.sig) SHA256SUMS`},
		{"Ed25519", edKey, edPublic, `openssl pkeyutl -verify -rawin -pubin -inkey "$KEY" -sigfile <(base64 --decode SHA256SUMS.sig) -in SHA256SUMS`},
	} {
		t.Run(test.name, func(t *testing.T) {
			privateFile, publicFile := keys(t, test.private, test.public)
			o := native(t)
			var err error
			if o.Key, err = ReadKey(privateFile); err != nil {
				t.Fatal(err)
			}
			write(t, o)
			public, err := ReadPublicKey(publicFile)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := Verify(t.Context(), o.Dir, public, &out); err != nil {
				t.Fatal(err)
			}
			if want := "/usr/local/bin/kube-scheduler"; !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "Kubernetes "+gobinary.Version) || !strings.Contains(out.String(), "signed with the key") {
				t.Errorf("it says %s, want lines with %s and its version", out.String(), want)
			}
			if _, err := exec.LookPath("openssl"); err == nil {
				cmd := exec.CommandContext(t.Context(), "bash", "-c", test.openssl)
				cmd.Dir, cmd.Env = o.Dir, append(os.Environ(), "KEY="+publicFile)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %v: %s", test.openssl, err, out)
				}
			}
			file, err := os.OpenFile(filepath.Join(o.Dir, sumsFile), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(file)
			file.Close()
			if err := Verify(t.Context(), o.Dir, public, &out); err == nil || !strings.Contains(err.Error(), "is not a signature of SHA256SUMS by this key") {
				t.Errorf("changed checksums: got error %v", err)
			}
		})
	}
}

// native are the options of a release of one image, for this host's platform.
func native(t *testing.T) Options {
	t.Helper()
	o := options(t)
	platform := "linux/" + runtime.GOARCH
	o.Binaries = map[string][]string{platform: o.Binaries[platform]}
	o.Images = slices.DeleteFunc(o.Images, func(image Image) bool { return image.Name != "kube-scheduler" })
	o.Packages = slices.DeleteFunc(o.Packages, func(p Package) bool { return p.Name != "kubectl" })
	return o
}

func TestAProgramThatNamesNoCommitHasTheOneThatIsGiven(t *testing.T) {
	o := options(t)
	dir := t.TempDir()
	gobinary.Write(t, filepath.Join(dir, "kubectl-partition"), gobinary.Program(t, "bare"))
	o.Binaries = map[string][]string{"linux/amd64": {dir}}
	o.Images, o.Packages = []Image{Command("kubectl-partition", "a command")}, nil
	if err := Write(t.Context(), o); err == nil || !strings.Contains(err.Error(), "kubectl-partition has no vcs.revision: ") {
		t.Errorf("without a commit: got error %v", err)
	}
	o.Commit, o.Date = strings.Repeat("1234567890", 4), time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	write(t, o)
	file := config(t, imagesOf(t, o.Dir)["kubectl-partition:v1.37.0_wp.1234567 linux/amd64"])
	if got := file.Config.Labels["org.opencontainers.image.revision"]; got != o.Commit || !file.Created.Equal(o.Date) {
		t.Errorf("the image is of commit %s and %s, want %s and %s", got, file.Created, o.Commit, o.Date)
	}
}

func TestAPublicKeyOfAnotherKindIsRefused(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, public := keys(t, key, &key.PublicKey)
	if _, err := ReadPublicKey(public); err == nil || !strings.Contains(err.Error(), public+": a key of type *rsa.PublicKey; only ECDSA and Ed25519 are supported") {
		t.Errorf("got error %v", err)
	}
}

func TestVerifyNamesWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		name, want string
		change     func(dir string)
	}{
		{"a file that was changed", "images.txt has sha256 ", func(dir string) { gobinary.Write(t, filepath.Join(dir, listFile), nil) }},
		{"a file that was added", "more is not in SHA256SUMS", func(dir string) { gobinary.Write(t, filepath.Join(dir, "more"), nil) }},
		{"a file that is missing", "images.txt is missing", func(dir string) { os.Remove(filepath.Join(dir, listFile)) }},
		{"no checksums", "SHA256SUMS: no such file", func(dir string) { os.Remove(filepath.Join(dir, sumsFile)) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := native(t)
			write(t, o)
			test.change(o.Dir)
			if err := Verify(t.Context(), o.Dir, nil, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
	t.Run("no emulator", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		_, _, err := start(t.Context(), "kubelet", bytes.NewReader(gobinary.Program(t, foreign())))
		if err == nil || !strings.Contains(err.Error(), "-static") || !strings.Contains(err.Error(), "Debian's package qemu-user-static has it") {
			t.Errorf("got error %v, want one that names the emulator and its package", err)
		}
	})
	t.Run("a program that does not start", func(t *testing.T) {
		if _, _, err := start(t.Context(), "kubelet", bytes.NewReader(doesNotStart(t))); err == nil || !strings.Contains(err.Error(), "does not start: --version: signal: ") {
			t.Errorf("got error %v, want one with the signal", err)
		}
	})
}

func TestAProgramOfAnotherArchitectureStartsUnderQEMU(t *testing.T) {
	if _, err := emulator(strings.TrimPrefix(foreign(), "linux/")); err != nil {
		t.Skip(err)
	}
	platform, says, err := start(t.Context(), "kubelet", bytes.NewReader(gobinary.Program(t, foreign())))
	if err != nil || platform != foreign() || says != "Kubernetes "+gobinary.Version {
		t.Errorf("a program of %q says %q (%v), want one of %s with its version", platform, says, err, foreign())
	}
}

// withBash writes a base, an OCI layout, with this host's bash and the libraries that it needs, and with
// the links that Debian has in place of directories.
func withBash(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ldd", "/bin/bash").Output()
	if err != nil {
		t.Skipf("the libraries of bash: %v", err)
	}
	o := native(t)
	o.Packages, o.Images = nil, []Image{Command("kubectl-partition", "a base with bash")}
	o.Images[0].Files = func(tree *rootfs.Tree) {
		for _, dir := range []string{"bin", "lib", "lib64"} {
			tree.Symlink(dir, "/usr/"+dir)
		}
		for _, file := range append(strings.Fields(string(out)), "/bin/bash") {
			if !strings.HasPrefix(file, "/") {
				continue
			}
			if err := tree.Copy("usr/"+strings.TrimPrefix(strings.TrimPrefix(file, "/usr"), "/"), 0o755, file); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(t, o)
	return filepath.Join(o.Dir, Layout)
}

func TestHyperkubeStartsTheKubelet(t *testing.T) {
	o := native(t)
	o.Packages, o.Images = nil, slices.DeleteFunc(Images("v1.37.0"), func(image Image) bool { return image.Name != "hyperkube" })
	o.Bases = map[string]string{"hyperkube": withBash(t)}
	write(t, o)
	var out bytes.Buffer
	if err := Verify(t.Context(), o.Dir, nil, &out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), errNoRoot.Error()) {
		t.Skip(out.String())
	}
	if !regexp.MustCompile(`/usr/bin/hyperkube kubelet +Kubernetes ` + regexp.QuoteMeta(gobinary.Version)).MatchString(out.String()) {
		t.Errorf("it says\n%s\nwant a line with the kubelet's version", &out)
	}
	// The base of the other tests has no bash.
	o.Bases = nil
	write(t, o)
	if err := Verify(t.Context(), o.Dir, nil, &out); err == nil || !strings.Contains(err.Error(), "/usr/bin/hyperkube kubelet --version does not start: ") {
		t.Errorf("without bash: got error %v", err)
	}
}

// leftovers fails if there is anything in a directory but what is named.
func leftovers(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v are left behind, want %v", got, want)
	}
}

func TestWhatFailsLeavesThePreviousRelease(t *testing.T) {
	o := native(t)
	write(t, o)
	before, err := hashFiles(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	platform := "linux/" + runtime.GOARCH
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name, want string
		ctx        context.Context
		change     func(*Options)
	}{
		{"a missing binary", "image kube-scheduler: no kube-scheduler for " + platform, t.Context(), func(o *Options) { o.Binaries = map[string][]string{platform: {t.TempDir()}} }},
		{"a binary of another architecture", ", want ", t.Context(), func(o *Options) {
			o.Binaries = map[string][]string{"linux/arm64": o.Binaries[platform]}
			if platform == "linux/arm64" {
				o.Binaries = map[string][]string{"linux/amd64": o.Binaries[platform]}
			}
		}},
		{"an unknown platform", `platform "linux/riscv64": known are linux/amd64, linux/arm64, linux/ppc64le, linux/s390x`, t.Context(), func(o *Options) { o.Binaries = map[string][]string{"linux/riscv64": nil} }},
		{"binaries that are not in FIPS mode", `/kube-scheduler was built with GOFIPS140="", and its version is v1.37.0+wp.1234567-fips: `, t.Context(), func(o *Options) { o.Version += "-fips" }},
		{"binaries that are, without their version", `/kube-scheduler was built with GOFIPS140="latest", and its version is v1.37.0+wp.1234567: `, t.Context(), func(o *Options) {
			dir := t.TempDir()
			gobinary.Write(t, filepath.Join(dir, "kube-scheduler"), gobinary.Program(t, "fips"))
			o.Binaries = map[string][]string{"linux/amd64": {dir}}
		}},
		{"binaries of another release", "the binaries have version v1.37.0+wp.1234567, but the release is v1.36.3", t.Context(), func(o *Options) { o.Release = "v1.36.3" }},
		{"binaries of a release of the same beginning", "the binaries have version v1.37.0+wp.1234567, but the release is v1.37", t.Context(), func(o *Options) { o.Release = "v1.37" }},
		{"a binary that is built again meanwhile", "it was built again meanwhile", t.Context(), func(o *Options) {
			dir := t.TempDir()
			for _, from := range o.Binaries[platform] {
				if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
					t.Fatal(err)
				}
			}
			o.Binaries = map[string][]string{platform: {dir}}
			o.Say = func(string, ...any) {
				file := filepath.Join(dir, "kube-scheduler")
				data, err := os.ReadFile(file)
				if err == nil {
					err = os.Remove(file)
				}
				if err == nil {
					err = os.WriteFile(file, append(data, 0), 0o755)
				}
				if err != nil {
					t.Error(err)
				}
			}
		}},
		{"a base of an image that is not there", `base of image "etcd": there is no such image`, t.Context(), func(o *Options) { o.Bases = map[string]string{"etcd": "scratch"} }},
		{"a base that is not a reference", `base "a b" is neither a directory nor a reference`, t.Context(), func(o *Options) { o.Bases = map[string]string{"kube-scheduler": "a b"} }},
		{"a base that is not a layout", "is not an OCI layout", t.Context(), func(o *Options) { o.Bases = map[string]string{"kube-scheduler": t.TempDir()} }},
		{"a base that a registry does not have", "is not available: ", t.Context(), func(o *Options) {
			o.Bases = map[string]string{"kube-scheduler": strings.TrimPrefix(refusing.URL, "http://") + "/base:1"}
		}},
		{"a registry that cannot be reached", "is not available: ", cancelled, func(o *Options) { o.Bases = map[string]string{"kube-scheduler": "localhost:1/base:1"} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := o
			test.change(&changed)
			err := Write(test.ctx, changed)
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v, want one line with %q", err, test.want)
			}
			leftovers(t, filepath.Dir(o.Dir), "images")
			if after, err := hashFiles(o.Dir); err != nil || !maps.Equal(before, after) {
				t.Errorf("the previous release has changed (%v)", err)
			}
		})
	}
}

func TestCheckNeedsNoBinaries(t *testing.T) {
	o := native(t)
	o.Version, o.Binaries = "", map[string][]string{"linux/" + runtime.GOARCH: {filepath.Join(t.TempDir(), "bin")}}
	o.Bases = map[string]string{"kube-scheduler": withBash(t)}
	if err := Check(t.Context(), o); err != nil {
		t.Error(err)
	}
	o.Bases["kube-scheduler"] = t.TempDir()
	if err := Check(t.Context(), o); err == nil || !strings.Contains(err.Error(), "is not an OCI layout") {
		t.Errorf("got error %v, want one that says that it is not an OCI layout", err)
	}
	o.Bases, o.Images, o.Lock = nil, Images("v1.37.0"), options(t).Lock
	o.Store = &debian.Store{Dir: t.TempDir(), Mirrors: []string{"copy:///nowhere"}}
	if err := Check(t.Context(), o); err == nil || !strings.Contains(err.Error(), "package tool 1:1.0+a-1 cannot be downloaded") {
		t.Errorf("got error %v, want one that names the package that cannot be downloaded", err)
	}
	o.Bases = map[string]string{"": withBash(t)}
	if err := Check(t.Context(), o); err != nil {
		t.Errorf("on another base, it says %v", err)
	}
	leftovers(t, filepath.Dir(o.Dir))
}

func TestWhatDoesNotVerifyLeavesThePreviousRelease(t *testing.T) {
	o := native(t)
	var out bytes.Buffer
	o.Verify = &out
	write(t, o)
	if want := "/usr/local/bin/kube-scheduler"; !strings.Contains(out.String(), want) {
		t.Errorf("it says %s, want a line with %s", out.String(), want)
	}
	before, err := hashFiles(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	platform := "linux/" + runtime.GOARCH
	broken := t.TempDir()
	for _, name := range []string{"kube-scheduler", "kube-log-runner", "kubectl"} {
		gobinary.Write(t, filepath.Join(broken, name), doesNotStart(t))
	}
	for _, test := range []struct {
		name, want string
		change     func(*Options)
	}{
		{"a program that does not start", "does not start: ", func(o *Options) { o.Binaries = map[string][]string{platform: {broken}} }},
		{"no emulator", "programs of " + foreign() + " cannot be started: ", func(o *Options) {
			t.Setenv("PATH", t.TempDir())
			o.Binaries = map[string][]string{foreign(): nil}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			changed := o
			test.change(&changed)
			if err := Write(t.Context(), changed); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
			leftovers(t, filepath.Dir(o.Dir), "images")
			if after, err := hashFiles(o.Dir); err != nil || !maps.Equal(before, after) {
				t.Errorf("the previous release has changed (%v)", err)
			}
		})
	}
}

// foreign is the platform that is not this host's.
func foreign() string {
	if runtime.GOARCH == "arm64" {
		return "linux/amd64"
	}
	return "linux/arm64"
}

// doesNotStart is a program of this host's platform that a signal ends.
func doesNotStart(t *testing.T) []byte {
	t.Helper()
	broken := bytes.Clone(gobinary.Program(t, "linux/"+runtime.GOARCH))
	// The address at which an ELF binary begins, see elf(5).
	copy(broken[24:32], make([]byte, 8))
	return broken
}

func TestImagesAreBuiltOnTheBaseThatIsGiven(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	// The base is a release too: it has both platforms.
	from := full(t)
	if err := oci.Push(t.Context(), filepath.Join(from.Dir, Layout), host+"/bases", func(string, v1.Hash) {}); err != nil {
		t.Fatal(err)
	}
	single := options(t)
	single.Dir, single.Packages = filepath.Join(t.TempDir(), "images"), nil
	single.Images = []Image{Command("kubectl-partition", "a base")}
	write(t, single)
	for name, reference := range map[string]string{
		"registry": host + "/bases/kubectl-partition:v1.37.0_wp.1234567",
		"layout":   filepath.Join(single.Dir, Layout),
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			o.Bases, o.Packages = map[string]string{"": reference}, nil
			o.Images = slices.DeleteFunc(o.Images, func(image Image) bool { return image.Name != "hyperkube" && image.Name != "kube-apiserver" })
			write(t, o)
			images := imagesOf(t, o.Dir)
			for _, platform := range gobinary.Platforms {
				on, beside := config(t, images["hyperkube:v1.37.0_wp.1234567 "+platform]), config(t, images["kube-apiserver:v1.37.0_wp.1234567 "+platform])
				if got := on.Config.Labels["org.opencontainers.image.base.name"]; got != reference || len(on.RootFS.DiffIDs) != 2 {
					t.Errorf("hyperkube for %s is built on %q with %d layers, want %s and 2", platform, got, len(on.RootFS.DiffIDs), reference)
				}
				if got := beside.Config.Labels["org.opencontainers.image.base.name"]; got != "" {
					t.Errorf("kube-apiserver, which needs no base, is built on %s", got)
				}
			}
			bill, err := os.ReadFile(filepath.Join(o.Dir, "sbom", "hyperkube-linux-arm64.cdx.json"))
			if err != nil || !bytes.Contains(bill, []byte("base/"+reference)) {
				t.Errorf("the bill of materials does not name the base (%v)", err)
			}
		})
	}
}

func TestPushedImagesAreThoseOfTheDirectory(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	o := full(t)
	pushed := map[string]v1.Hash{}
	if err := oci.Push(t.Context(), filepath.Join(o.Dir, Layout), host+"/partitioning/", func(reference string, digest v1.Hash) { pushed[reference] = digest }); err != nil {
		t.Fatal(err)
	}
	if len(pushed) != len(o.Images) {
		t.Errorf("%v were pushed, want %d images", pushed, len(o.Images))
	}
	for reference, digest := range pushed {
		tag, err := name.NewTag(reference)
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(tag)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := index.Digest(); err != nil || got != digest {
			t.Errorf("%s is %s in the registry, and %s was pushed (%v)", reference, got, digest, err)
		}
		if err := validate.Index(index); err != nil {
			t.Errorf("%s: %v", reference, err)
		}
	}
}

// A registry that takes only half of a release names none of it.
func TestTagsComeLast(t *testing.T) {
	o := full(t)
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/kube-scheduler/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	err := oci.Push(t.Context(), filepath.Join(o.Dir, Layout), host, func(reference string, _ v1.Hash) { t.Errorf("%s was pushed", reference) })
	if err == nil || !strings.Contains(err.Error(), "push of "+host+"/kube-scheduler:") {
		t.Errorf("got error %v, want one that names the image", err)
	}
	repository, err := name.NewRepository(host + "/kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	tags, err := remote.List(repository)
	if err != nil || slices.ContainsFunc(tags, func(tag string) bool { return !strings.HasPrefix(tag, "sha256:") }) {
		t.Errorf("an image that came before has the tags %q, %v", tags, err)
	}
}

func TestARegistryThatRefusesIsNamedInOneLine(t *testing.T) {
	o := native(t)
	write(t, o)
	for _, test := range []struct {
		name, want string
		handler    http.HandlerFunc
	}{
		{"without a right", "401 Unauthorized", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }},
		{"with a page", "403 Forbidden", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, "<html>\n<body>\nno\n</body>\n</html>\n")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(test.handler)
			defer server.Close()
			host := strings.TrimPrefix(server.URL, "http://")
			err := oci.Push(t.Context(), filepath.Join(o.Dir, Layout), host, func(string, v1.Hash) { t.Error("something was pushed") })
			if err == nil || !strings.Contains(err.Error(), "push of "+host+"/kube-scheduler:v1.37.0_wp.1234567: ") || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %v, want one line with the image and %q", err, test.want)
			}
		})
	}
}
