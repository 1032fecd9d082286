// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/gzip"

	"workload.openshift.io/kubernetes/cmd/images/attest"
	"workload.openshift.io/kubernetes/cmd/images/debian"
	"workload.openshift.io/kubernetes/cmd/images/internal/digest"
	"workload.openshift.io/kubernetes/cmd/images/internal/disk"
	"workload.openshift.io/kubernetes/cmd/images/oci"
	"workload.openshift.io/kubernetes/cmd/images/program"
	"workload.openshift.io/kubernetes/cmd/images/provenance"
	"workload.openshift.io/kubernetes/cmd/images/rootfs"
	"workload.openshift.io/kubernetes/cmd/images/sbom"
)

// Options say what to write.
type Options struct {
	// Dir is the directory to write. It is replaced as a whole, or stays as it is.
	Dir      string
	Images   []Image
	Packages []Package
	// Binaries are directories of programs, in the order of preference, by platform, such as
	// linux/arm64. Each image has all platforms.
	Binaries map[string][]string
	// Release is upstream's, such as v1.37.0, and Version that of the binaries, such as
	// v1.37.0+wp.1c927af.
	Release, Version string
	// Commit is this project's, and Date is its date, which versions of packages have. They are also
	// those of programs that do not name theirs. Empty means that they are not known; then packages
	// have the date of their programs.
	Commit string
	Date   time.Time
	// Repository is prefix of the images' names in archives, such as
	// workload.openshift.io.
	Repository string
	// Source is the URL of the source; empty means that of each program's module.
	Source string
	// Bases are references of other bases, by image; that of "" is for all images that have a
	// base of the lock file.
	Bases map[string]string
	Lock  *debian.Lock
	Store *debian.Store
	// Chart is the directory of a Helm chart that is packed with the digests of these images; empty means none.
	Chart string
	// Key signs the checksums; nil means that they are not signed.
	Key crypto.Signer
	// Verify is where Verify reports on the directory before it replaces the one that was there; nil
	// means that it is not verified.
	Verify io.Writer
	// Say reports progress.
	Say func(format string, arguments ...any)
}

// The directories and files in Options.Dir.
const (
	// Layout is the OCI layout of all images.
	Layout        = "layout"
	archivesDir   = "archives"
	packagesDir   = "packages"
	sbomDir       = "sbom"
	provenanceDir = "provenance"
	listFile      = "images.txt"
	sumsFile      = "SHA256SUMS"
	signatureFile = "SHA256SUMS.sig"
	// mark is a file that tells such a directory from all others. One of binaries has checksums, too.
	mark = Layout + "/oci-layout"
)

// Tag is a version as a tag of an image, which must not have a plus sign. It is as kubeadm makes it
// of kubernetesVersion (KubernetesVersionToImageTag in cmd/kubeadm/app/util/version.go).
func Tag(version string) string { return notInTags.ReplaceAllString(version, "_") }

var notInTags = regexp.MustCompile(`[^-\w.]`)

// writer is a directory that is being written.
type writer struct {
	Options
	// dir is where it is written, and work has files that are removed at the end.
	dir, work string
	found     map[string]*program.Program
	bases     map[string]*base
	// resolved are the references of bases that were given, by what was given: all platforms get the same one.
	resolved map[string]string
	list     *tabwriter.Writer
	// digests are those of the images that were written, by their names.
	digests map[string]string
}

// base is what an image begins with.
type base struct {
	image v1.Image
	// reference and digest are those of an image that is not ours.
	reference, digest string
	packages          []debian.Package
}

// Check finds what Write needs besides binaries, which take long to build: the bases that were given, the
// packages of the others and, if programs are to be started, emulators. Directories of binaries need not
// be there yet.
func Check(ctx context.Context, options Options) error {
	if err := options.check(); err != nil {
		return err
	}
	for _, reference := range slices.Sorted(maps.Values(options.Bases)) {
		for platform := range options.Binaries {
			if _, err := oci.Base(ctx, reference, platform); err != nil {
				return err
			}
		}
	}
	assembled := map[string]bool{}
	for _, image := range options.Images {
		if image.Base == "" || assembled[image.Base] || options.given(image) != "" {
			continue
		}
		assembled[image.Base] = true
		for _, platform := range slices.Sorted(maps.Keys(options.Binaries)) {
			if _, err := options.Lock.Fetch(ctx, options.Store, image.Base, platform); err != nil {
				return err
			}
		}
	}
	return nil
}

// given returns the reference of the image that one begins with in place of its base; empty if there is
// none.
func (options *Options) given(image Image) string {
	reference := options.Bases[image.Name]
	if reference == "" && image.Base != "" {
		reference = options.Bases[""]
	}
	return reference
}

// check says what is wrong with options themselves.
func (options *Options) check() error {
	if err := disk.Replaceable(options.Dir, mark); err != nil {
		return err
	}
	for platform := range options.Binaries {
		if err := program.KnownPlatform(platform); err != nil {
			return err
		}
		if options.Verify != nil {
			if _, err := emulator(strings.TrimPrefix(platform, "linux/")); err != nil {
				return err
			}
		}
	}
	for image := range options.Bases {
		if image != "" && !slices.ContainsFunc(options.Images, func(i Image) bool { return i.Name == image }) {
			return fmt.Errorf("base of image %q: there is no such image", image)
		}
	}
	return nil
}

// Write writes the images and the packages of a release. If it fails, nothing is left behind, and
// what was there before stays.
func Write(ctx context.Context, options Options) error {
	if options.Release != "" && options.Version != options.Release && !strings.HasPrefix(options.Version, options.Release+"+") {
		return fmt.Errorf("the binaries have version %s, but the release is %s", options.Version, options.Release)
	}
	if err := options.check(); err != nil {
		return err
	}
	return disk.Replace(options.Dir, mark, func(dir string) error {
		w := &writer{
			Options: options, dir: dir, work: filepath.Join(dir, "work"),
			found: map[string]*program.Program{}, bases: map[string]*base{}, resolved: map[string]string{}, digests: map[string]string{},
		}
		if err := w.all(ctx); err != nil || options.Verify == nil {
			return err
		}
		var key crypto.PublicKey
		if options.Key != nil {
			key = options.Key.Public()
		}
		return Verify(ctx, dir, key, options.Verify)
	})
}

// all writes all that the directory has.
func (w *writer) all(ctx context.Context) error {
	for _, name := range []string{"work", archivesDir, packagesDir, sbomDir, provenanceDir} {
		if err := os.Mkdir(filepath.Join(w.dir, name), 0o755); err != nil {
			return err
		}
	}
	if err := w.check(ctx); err != nil {
		return err
	}
	if err := w.images(ctx); err != nil {
		return err
	}
	for _, p := range w.Packages {
		for _, platform := range w.platforms() {
			if err := w.pack(ctx, p, platform); err != nil {
				return fmt.Errorf("package %s, %s: %w", p.Name, platform, err)
			}
		}
	}
	if err := w.unchanged(); err != nil {
		return err
	}
	if err := os.RemoveAll(w.work); err != nil {
		return err
	}
	return WriteSums(w.dir, w.Key)
}

// unchanged returns an error if a program was built again meanwhile: each is read for several files, whose
// contents, SBOMs and provenance must agree.
func (w *writer) unchanged() error {
	for _, key := range slices.Sorted(maps.Keys(w.found)) {
		p := w.found[key]
		sum, err := digest.File(p.File)
		if err != nil {
			return err
		}
		if sum != p.SHA256 {
			return fmt.Errorf("%s has sha256 %s, but had %s at the start: it was built again meanwhile; try again", p.File, sum, p.SHA256)
		}
	}
	return nil
}

func (w *writer) platforms() []string { return slices.Sorted(maps.Keys(w.Binaries)) }

func (w *writer) images(ctx context.Context) error {
	to, err := layout.Write(filepath.Join(w.dir, Layout), empty.Index)
	if err != nil {
		return err
	}
	list, err := os.Create(filepath.Join(w.dir, listFile))
	if err != nil {
		return err
	}
	w.list = tabwriter.NewWriter(list, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w.list, "IMAGE\tPLATFORM\tCOMPRESSED\tDIGEST")
	for _, image := range w.Images {
		w.Say("%s: image %s", w.Version, image.Name)
		if err := w.image(ctx, to, image); err != nil {
			return errors.Join(fmt.Errorf("image %s: %w", image.Name, err), list.Close())
		}
	}
	if w.Chart != "" {
		if err := w.chart(to); err != nil {
			return errors.Join(fmt.Errorf("chart %s: %w", w.Chart, err), list.Close())
		}
	}
	return errors.Join(w.list.Flush(), list.Close())
}

// check finds all programs and bases. Writing takes minutes, so what is missing shows before.
func (w *writer) check(ctx context.Context) error {
	for _, image := range w.Images {
		for _, platform := range w.platforms() {
			if _, err := w.programs(image, platform); err != nil {
				return fmt.Errorf("image %s: %w", image.Name, err)
			}
		}
	}
	for _, p := range w.Packages {
		for _, platform := range w.platforms() {
			if _, err := w.find(p.Name, platform); err != nil {
				return fmt.Errorf("package %s: %w", p.Name, err)
			}
		}
	}
	for _, image := range w.Images {
		for _, platform := range w.platforms() {
			if _, err := w.base(ctx, image, platform); err != nil {
				return fmt.Errorf("image %s: %w", image.Name, err)
			}
		}
	}
	return nil
}

// find finds a program once.
func (w *writer) find(name, platform string) (*program.Program, error) {
	key := platform + "/" + name
	if p := w.found[key]; p != nil {
		return p, nil
	}
	p, err := program.Find(name, platform, w.Binaries[platform])
	if err != nil {
		return nil, err
	}
	if (p.FIPS() != "") != strings.HasSuffix(w.Version, program.FIPSVersion) {
		return nil, fmt.Errorf("%s was built with GOFIPS140=%q, and its version is %s: build it again, with carry build --fips for a version that ends with %s", p.File, p.FIPS(), w.Version, program.FIPSVersion)
	}
	if p.Revision == "" {
		if w.Commit == "" {
			return nil, fmt.Errorf("%s has no vcs.revision: build it in a git checkout, or give its commit and date", p.File)
		}
		p.Revision, p.Date = w.Commit, w.Date
	}
	w.found[key] = p
	return p, nil
}

// image writes an image of all platforms.
func (w *writer) image(ctx context.Context, to layout.Path, image Image) error {
	reference := w.Repository + "/" + image.Name
	statement := provenance.Statement{
		Builder:    w.Commit,
		Parameters: map[string]any{"image": image.Name, "release": w.Release, "version": w.Version, "platforms": w.platforms()},
	}
	built, bills := map[string]v1.Image{}, map[string]map[string][]byte{}
	var first *program.Program
	for _, platform := range w.platforms() {
		if err := ctx.Err(); err != nil {
			return err
		}
		programs, err := w.programs(image, platform)
		if err != nil {
			return err
		}
		if first == nil {
			first = programs[0]
			statement.Materials = append(statement.Materials, provenance.Artifact{
				Name: "source of " + first.Name, URI: w.source(first), Digest: map[string]string{"gitCommit": first.Revision},
			})
		}
		for _, p := range programs {
			if p.Revision != first.Revision {
				return fmt.Errorf("%s is of commit %s, but %s of %s: build both again", p.File, p.Revision, first.File, first.Revision)
			}
			statement.Materials = append(statement.Materials, provenance.Artifact{Name: platform + "/" + p.Name, Digest: map[string]string{"sha256": p.SHA256}})
		}
		from, err := w.base(ctx, image, platform)
		if err != nil {
			return err
		}
		if built[platform], err = w.assemble(from, image, programs); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		digest, err := built[platform].Digest()
		if err != nil {
			return err
		}
		for _, p := range from.packages {
			statement.Materials = append(statement.Materials, provenance.Artifact{
				Name: platform + "/" + p.Name, URI: sbom.DebianURL(w.Lock.Suite, p), Digest: map[string]string{"sha256": p.SHA256},
			})
		}
		if from.reference != "" {
			statement.Materials = append(statement.Materials, provenance.Artifact{Name: platform + "/base", URI: from.reference, Digest: digestOf(from.digest)})
		}
		statement.Subjects = append(statement.Subjects, provenance.Artifact{Name: reference + " " + platform, Digest: digestOf(digest.String())})
		bill := sbom.Image{
			Name: reference, Version: w.Version, Release: w.Release, Platform: platform, Digest: digest.String(), Date: first.Date, Programs: programs,
			Suite: w.Lock.Suite, Packages: from.packages, Base: from.reference, BaseDigest: from.digest,
		}
		own := image.Name + "-" + strings.ReplaceAll(platform, "/", "-")
		bills[digest.String()] = map[string][]byte{}
		for _, format := range billFormats {
			var written bytes.Buffer
			if err := format.write(&written, bill); err != nil {
				return err
			}
			bills[digest.String()][format.predicate] = written.Bytes()
			if err := os.WriteFile(filepath.Join(w.dir, sbomDir, own+format.extension), written.Bytes(), 0o644); err != nil {
				return err
			}
		}
		tag, err := name.NewTag(reference + ":" + Tag(w.Version))
		if err != nil {
			return err
		}
		if err := w.file(filepath.Join(archivesDir, own+".tar"), func(to io.Writer) error { return tarball.Write(tag, built[platform], to) }); err != nil {
			return err
		}
	}
	annotations := map[string]string{
		"org.opencontainers.image.version": w.Version, "org.opencontainers.image.revision": first.Revision,
		"org.opencontainers.image.created": first.Date.UTC().Format(time.RFC3339),
	}
	index, err := oci.Index(built, annotations)
	if err != nil {
		return err
	}
	named := image.Name + ":" + Tag(w.Version)
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{oci.RefName: named, "io.containerd.image.name": w.Repository + "/" + named})); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	w.digests[image.Name] = digest.String()
	statement.Subjects = append([]provenance.Artifact{{Name: reference, Digest: digestOf(digest.String())}}, statement.Subjects...)
	if err := w.enlist(named, digest, built); err != nil {
		return err
	}
	var origin bytes.Buffer
	if err := statement.Write(&origin); err != nil {
		return err
	}
	if err := w.attest(to, named, index, built, origin.Bytes(), bills); err != nil {
		return fmt.Errorf("attestations: %w", err)
	}
	return os.WriteFile(filepath.Join(w.dir, provenanceDir, image.Name+".intoto.json"), origin.Bytes(), 0o644)
}

// billFormats are those of bills of materials.
var billFormats = []struct {
	extension, predicate string
	write                func(io.Writer, sbom.Image) error
}{
	{".cdx.json", attest.CycloneDX, sbom.WriteCycloneDX},
	{".spdx.json", attest.SPDX, sbom.WriteSPDX},
}

// attest attaches what the key signs to an image: that it is ours, from what it was made, and for each platform what is
// in it. The bills are by the digest of an image and the type of their predicate. Without a key there is nothing.
func (w *writer) attest(to layout.Path, named string, index v1.ImageIndex, built map[string]v1.Image, origin []byte, bills map[string]map[string][]byte) error {
	if w.Key == nil {
		return nil
	}
	attach := func(subject partial.Describable, predicateType string) error {
		descriptor, err := partial.Descriptor(subject)
		if err != nil {
			return err
		}
		statement := origin
		switch predicateType {
		case attest.Signed:
			statement, err = attest.Statement(named, descriptor.Digest.Hex, predicateType, json.RawMessage("{}"))
		case attest.CycloneDX, attest.SPDX:
			statement, err = attest.Statement(named, descriptor.Digest.Hex, predicateType, bills[descriptor.Digest.String()][predicateType])
		}
		if err != nil {
			return err
		}
		bundle, err := attest.Bundle(statement, w.Key)
		if err != nil {
			return err
		}
		attachment, err := oci.Attachment(v1.Descriptor{MediaType: descriptor.MediaType, Size: descriptor.Size, Digest: descriptor.Digest}, attest.BundleType, predicateType, bundle)
		if err != nil {
			return err
		}
		return to.AppendImage(attachment, layout.WithAnnotations(map[string]string{oci.AttachedTo: named}))
	}
	for _, predicate := range attachedToIndexes {
		if err := attach(index, predicate); err != nil {
			return err
		}
	}
	for _, platform := range w.platforms() {
		for _, predicate := range attachedToImages {
			if err := attach(built[platform], predicate); err != nil {
				return err
			}
		}
	}
	return nil
}

// enlist adds an image to the list for readers.
func (w *writer) enlist(named string, digest v1.Hash, built map[string]v1.Image) error {
	fmt.Fprintf(w.list, "%s\tall\t\t%s\n", named, digest)
	for _, platform := range w.platforms() {
		manifest, err := built[platform].Manifest()
		if err != nil {
			return err
		}
		digest, err := built[platform].Digest()
		if err != nil {
			return err
		}
		var size int64
		for _, layer := range manifest.Layers {
			size += layer.Size
		}
		fmt.Fprintf(w.list, "%s\t%s\t%.1f MB\t%s\n", named, platform, float64(size)/1e6, digest)
	}
	return nil
}

// programs finds the programs of an image.
func (w *writer) programs(image Image, platform string) ([]*program.Program, error) {
	var found []*program.Program
	for _, wanted := range image.Programs {
		p, err := w.find(wanted.Name, platform)
		if errors.Is(err, fs.ErrNotExist) && wanted.Optional {
			continue
		}
		if err != nil {
			return nil, err
		}
		if p.Interpreter != "" && image.Base == "" && w.Bases[image.Name] == "" {
			return nil, fmt.Errorf("%s is dynamically linked, and the image has no %s: link it statically, or give a base", p.File, p.Interpreter)
		}
		found = append(found, p)
	}
	return found, nil
}

// base returns what an image begins with. Images of one base share its layer.
func (w *writer) base(ctx context.Context, image Image, platform string) (*base, error) {
	reference := w.given(image)
	key := strings.Join([]string{reference, image.Base, platform}, " ")
	if b := w.bases[key]; b != nil {
		return b, nil
	}
	b := &base{reference: reference}
	var err error
	switch {
	case reference != "":
		resolved, known := w.resolved[reference]
		if !known {
			if resolved, err = oci.Resolve(ctx, reference); err != nil {
				return nil, err
			}
			w.resolved[reference] = resolved
		}
		if b.image, err = oci.Base(ctx, resolved, platform); err != nil {
			return nil, err
		}
		digest, err := b.image.Digest()
		if err != nil {
			return nil, err
		}
		b.digest = digest.String()
	case image.Base != "":
		w.Say("%s: base %s for %s", w.Version, image.Base, platform)
		var tree *rootfs.Tree
		if tree, b.packages, err = w.Lock.Assemble(ctx, w.Store, image.Base, platform); err != nil {
			return nil, err
		}
		accounts(tree)
		// Nothing in it depends on a release, so neither does its date: all releases share it.
		layer, err := oci.WriteLayer(w.work, tree, time.Unix(0, 0))
		if err != nil {
			return nil, err
		}
		if b.image, err = oci.Empty(platform); err != nil {
			return nil, err
		}
		if b.image, err = oci.Append(b.image, layer, fmt.Sprintf("images: %d packages of Debian %s", len(b.packages), w.Lock.Suite), oci.Config{Date: time.Unix(0, 0), Path: searchPath}); err != nil {
			return nil, err
		}
	default:
		if b.image, err = oci.Empty(platform); err != nil {
			return nil, err
		}
	}
	w.bases[key] = b
	return b, nil
}

// searchPath is the PATH of Debian's images and of upstream's.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// accounts adds what programs expect to find even where there is nothing else.
func accounts(tree *rootfs.Tree) {
	tree.File("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"))
	tree.File("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\nnonroot:x:65532:\n"))
	tree.Dir("root", 0o700)
	tree.Dir("tmp", fs.ModeSticky|0o777)
}

// assemble returns the image of a platform.
func (w *writer) assemble(from *base, image Image, programs []*program.Program) (v1.Image, error) {
	tree := rootfs.New()
	if from.reference == "" && len(from.packages) == 0 {
		accounts(tree)
	}
	if image.Files != nil {
		image.Files(tree)
	}
	for _, wanted := range image.Programs {
		at := slices.IndexFunc(programs, func(p *program.Program) bool { return p.Name == wanted.Name })
		if at < 0 {
			continue
		}
		from, mode := programs[at].File, fs.FileMode(0o755)
		if wanted.Compressed {
			var err error
			if from, err = w.compressed(programs[at]); err != nil {
				return nil, err
			}
			mode = 0o644
		}
		if err := tree.Copy(wanted.Path, mode, from); err != nil {
			return nil, err
		}
		entry, _ := tree.Get(wanted.Path)
		entry.Capabilities = wanted.Capabilities
		tree.Set(wanted.Path, entry)
	}
	first := programs[0]
	layer, err := oci.WriteLayer(w.work, tree, first.Date)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{
		"org.opencontainers.image.title":       image.Title,
		"org.opencontainers.image.description": image.Description,
		"org.opencontainers.image.version":     w.Version,
		"org.opencontainers.image.revision":    first.Revision,
		"org.opencontainers.image.created":     first.Date.UTC().Format(time.RFC3339),
		"org.opencontainers.image.source":      w.source(first),
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"workload.openshift.io/release":        w.Release,
	}
	if from.reference != "" {
		labels["org.opencontainers.image.base.name"], labels["org.opencontainers.image.base.digest"] = from.reference, from.digest
	}
	if image.LabelRevision != "" {
		labels[image.LabelRevision] = first.Revision
	}
	maps.Copy(labels, image.Labels)
	return oci.Append(from.image, layer, "images: "+image.Name+" "+w.Version, oci.Config{
		Date: first.Date, Entrypoint: image.Entrypoint, User: image.User, Path: searchPath, Labels: labels,
	})
}

// compressed writes a program as gzip leaves it, without a name and a time, and returns the file.
func (w *writer) compressed(p *program.Program) (string, error) {
	from, err := os.Open(p.File)
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.CreateTemp(w.work, p.Name+"-")
	if err != nil {
		return "", err
	}
	stream := gzip.NewWriter(to)
	_, err = io.Copy(stream, from)
	return to.Name(), errors.Join(err, stream.Close(), to.Close())
}

// source is where the source of a program is.
func (w *writer) source(p *program.Program) string {
	return cmp.Or(w.Source, "https://"+p.Info.Main.Path)
}

func digestOf(digest string) map[string]string {
	algorithm, value, _ := strings.Cut(digest, ":")
	return map[string]string{algorithm: value}
}

// file writes a file of the directory.
func (w *writer) file(name string, write func(io.Writer) error) error {
	file, err := os.Create(filepath.Join(w.dir, name))
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(file, 1<<20)
	if err := errors.Join(write(buffered), buffered.Flush(), file.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// pack writes the tarball and the Debian package of a program.
func (w *writer) pack(ctx context.Context, p Package, platform string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.Say("%s: package %s for %s", w.Version, p.Name, platform)
	binary, err := w.find(p.Name, platform)
	if err != nil {
		return err
	}
	tree := rootfs.New()
	if err := tree.Copy(p.Path, 0o755, binary.File); err != nil {
		return err
	}
	archive := p.Name + "-" + strings.ReplaceAll(platform, "/", "-") + ".tar.gz"
	if err := w.file(filepath.Join(packagesDir, archive), func(to io.Writer) error {
		stream := gzip.NewWriter(to)
		return errors.Join(tree.Write(stream, "", binary.Date), stream.Close())
	}); err != nil {
		return err
	}
	installed := rootfs.New()
	if err := installed.Copy("usr/bin/"+p.Name, 0o755, binary.File); err != nil {
		return err
	}
	if p.Files != nil {
		p.Files(installed)
	}
	deb := &debian.Deb{
		Name: p.Name, Version: debVersion(w.Version, cmp.Or(w.Date, binary.Date)), Architecture: debian.Architecture(platform), Section: p.Section,
		Maintainer: maintainer, Homepage: w.source(binary), Depends: p.Depends, Recommends: p.Recommends, Summary: p.Summary,
		Description: []string{p.Summary + ",", "with workload partitioning, built from commit", binary.Revision + "."},
		Files:       installed, ConfigFiles: p.ConfigFiles, Scripts: p.Scripts, Date: binary.Date,
	}
	return w.file(filepath.Join(packagesDir, fmt.Sprintf("%s_%s_%s.deb", deb.Name, deb.Version, deb.Architecture)), deb.Write)
}

// debVersion is a version as dpkg orders it: a pre-release comes before its release, and builds of one
// release are in the order of a date. That must be this project's: the commit of a release's binaries is that
// of the patches, and stays when only the packages change that they call.
func debVersion(version string, date time.Time) string {
	release, build, _ := strings.Cut(strings.TrimPrefix(version, "v"), "+")
	commit := strings.LastIndex(build, ".") + 1
	dated := build[:commit] + date.UTC().Format("20060102T150405") + "." + build[commit:]
	return strings.Replace(release, "-", "~", 1) + "+" + strings.TrimSuffix(dated, ".") + "-1"
}

// maintainer is the author of what carry commits, too.
const maintainer = "workload partitioning <carry@workload.openshift.io>"
