// SPDX-License-Identifier: Apache-2.0

// Command images makes images and packages of Kubernetes binaries that carry builds, and of this
// project's own, without a container engine; checks them; and pushes them to a registry.
//
// Its packages, from those that know least:
//
//	rootfs      a tree of files
//	program     what a Go binary says of itself
//	debian      pinned Debian packages as a root file system, and packages of our own
//	oci         layers, images, registries
//	sbom        what is in an image
//	attest      signed statements about images
//	provenance  from what it was made
//	release     which images and packages there are, and the directory of them
//	bundle      a version of this project: images of releases, and what goes with them
package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/images/bundle"
	"workload.openshift.io/kubernetes/cmd/images/debian"
	"workload.openshift.io/kubernetes/cmd/images/oci"
	"workload.openshift.io/kubernetes/cmd/images/program"
	"workload.openshift.io/kubernetes/cmd/images/release"
)

func main() {
	syscall.Umask(0o022) // others start what is unpacked, and read what is written
	// A pager or tee that has ended must not end this in the middle: writes to it fail, and that is all.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as below nohup
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "images:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "images",
		Short:         "Make, check and push the images and packages of a release",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(buildCommand(), verifyCommand(), pushCommand(), lockCommand(), bundleCommand())
	return root
}

func buildCommand() *cobra.Command {
	var binaries, bases, only []string
	var lock, key, date string
	var verify, check bool
	options := release.Options{Store: &debian.Store{}, Repository: "workload.openshift.io"}
	cmd := &cobra.Command{
		Use:   "build DIRECTORY",
		Short: "Write images, packages, bills of materials and provenance into a directory",
		Long: `Write images, packages, bills of materials, provenance and checksums into a directory,
which is replaced as a whole. The same binaries give the same bytes.

Version, commit and date come from the binaries: the version from the SHA256SUMS next to
them, as carry build writes it, commit and date from what Go recorded in each. A binary that
was changed since, or built from uncommitted changes, is refused. --commit and --date are for
binaries in which Go recorded nothing.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.Dir = filepath.Clean(args[0])
			var err error
			if options.Binaries, err = directories(binaries, program.KnownPlatform); err != nil {
				return err
			}
			if options.Version == "" && !check {
				var all []string
				for _, dirs := range options.Binaries {
					all = append(all, dirs...)
				}
				slices.Sort(all)
				if options.Version, err = program.Version(all); err != nil {
					return err
				}
			}
			if options.Release == "" {
				options.Release, _, _ = strings.Cut(options.Version, "+")
			}
			if options.Images, options.Packages, err = choose(release.Images(options.Release), release.Packages(), only); err != nil {
				return err
			}
			options.Bases = map[string]string{}
			for _, base := range bases {
				image, reference, ok := strings.Cut(base, "=")
				if !ok {
					image, reference = "", base
				}
				options.Bases[image] = reference
			}
			if options.Lock, err = debian.Pinned(); lock != "" {
				options.Lock, err = debian.Read(lock)
			}
			if err != nil {
				return err
			}
			if (options.Commit == "") != (date == "") {
				return errors.New("--commit and --date: either both or none")
			}
			if date != "" {
				if options.Date, err = time.Parse(time.RFC3339, date); err != nil {
					return fmt.Errorf("--date: %w", err)
				}
			}
			if options.Key, err = readKey(key); err != nil {
				return err
			}
			start := time.Now()
			options.Say = says(cmd)
			if verify {
				options.Verify = cmd.OutOrStdout()
			}
			if check {
				return release.Check(cmd.Context(), options)
			}
			if err := release.Write(cmd.Context(), options); err != nil {
				return err
			}
			options.Say("%s: %d images and %d packages in %s, in %s", options.Version, len(options.Images), len(options.Packages), options.Dir, time.Since(start).Round(time.Second))
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&binaries, "bin", nil, "PLATFORM=DIRECTORY of binaries, such as linux/amd64=_output/v1.37.0/bin; if there are several for a platform, the first that has a binary counts")
	flags.StringSliceVar(&only, "only", nil, "names of images and packages to write; by default all")
	flags.StringArrayVar(&bases, "base", nil, "[IMAGE=]BASE to build on, a reference or a directory with an OCI layout; without IMAGE it applies to all images that have Debian packages")
	flags.StringVar(&options.Release, "release", "", "upstream's release; by default the version up to its plus sign")
	flags.StringVar(&options.Version, "version", "", "version; by default the one in SHA256SUMS next to the binaries")
	flags.StringVar(&options.Commit, "commit", "", "this project's commit, also for binaries that name none")
	flags.StringVar(&date, "date", "", "date of --commit, such as 2026-08-26T10:44:20Z")
	flags.StringVar(&options.Source, "source", "", "URL of the source; by default that of each program's Go module")
	flags.StringVar(&options.Chart, "chart", "", "directory of a Helm chart to pack, with the digests of the images; by default none")
	flags.StringVar(&key, "key", "", "private key, ECDSA or Ed25519, in PEM, that signs SHA256SUMS")
	flags.BoolVar(&verify, "verify", false, "run images verify before the directory is replaced")
	flags.BoolVar(&check, "check", false, "write nothing and need no binaries: check that bases, key and emulators are available; --release says which images there are")
	flags.StringVar(&lock, "lock", "", "lock file of Debian packages; by default the one in this program")
	flags.StringVar(&options.Store.Dir, "cache", defaultCache(), "directory that keeps Debian packages")
	flags.StringArrayVar(&options.Store.Mirrors, "mirror", nil, "URI of a Debian archive to try before those of the host's apt; repeatable")
	_ = cmd.MarkFlagRequired("bin")
	return cmd
}

// says prints progress.
func says(cmd *cobra.Command) func(format string, arguments ...any) {
	return func(format string, arguments ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", arguments...)
	}
}

// readKey reads the private key of a file, or none if there is no file.
func readKey(file string) (crypto.Signer, error) {
	if file == "" {
		return nil, nil
	}
	return release.ReadKey(file)
}

// directories parses --bin.
func directories(given []string, known func(platform string) error) (map[string][]string, error) {
	found := map[string][]string{}
	for _, pair := range given {
		platform, dir, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("--bin %q: not PLATFORM=DIRECTORY", pair)
		}
		if err := known(platform); err != nil {
			return nil, fmt.Errorf("--bin %q: %w", pair, err)
		}
		found[platform] = append(found[platform], dir)
	}
	return found, nil
}

// choose returns those images and packages whose names are given, or all.
func choose(images []release.Image, packages []release.Package, only []string) ([]release.Image, []release.Package, error) {
	if len(only) == 0 {
		return images, packages, nil
	}
	var known []string
	for _, image := range images {
		known = append(known, image.Name)
	}
	for _, p := range packages {
		known = append(known, p.Name)
	}
	for _, name := range only {
		if !slices.Contains(known, name) {
			return nil, nil, fmt.Errorf("--only %q: no such image or package; known are %s", name, strings.Join(known, ", "))
		}
	}
	images = slices.DeleteFunc(images, func(image release.Image) bool { return !slices.Contains(only, image.Name) })
	packages = slices.DeleteFunc(packages, func(p release.Package) bool { return !slices.Contains(only, p.Name) })
	return images, packages, nil
}

// defaultCache is a directory of the user; without one, packages are kept in a directory of temporary files.
func defaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "workload-partitioning", "debian")
}

func verifyCommand() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "verify DIRECTORY",
		Short: "Check checksums and signature, and start each program of each platform",
		Long: `Check the checksums of a directory that images build wrote, and their signature if a key is
given. Then start each program, as the user who runs this, with --version or --help: without
a key, verify only a directory of your own. Programs of another architecture run under QEMU,
which Debian's package qemu-user-static has. The script of hyperkube starts the kubelet
within its image, where root or a user namespace can do that.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			public, err := readPublicKey(key)
			if err != nil {
				return err
			}
			return release.Verify(cmd.Context(), args[0], public, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&key, "key", "", signedWith)
	return cmd
}

func pushCommand() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "push DIRECTORY REGISTRY[/PATH]",
		Short: "Push the images of all platforms to a registry",
		Long: `Push the images of a directory that images build wrote, each as an index of its platforms,
under its name and version. The directory's checksums must be valid, and signed if a key
is given. Credentials are those of docker login and podman login.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			public, err := readPublicKey(key)
			if err != nil {
				return err
			}
			if _, err := release.CheckSums(args[0], public); err != nil {
				return err
			}
			return oci.Push(cmd.Context(), filepath.Join(args[0], release.Layout), args[1], func(reference string, digest v1.Hash) {
				fmt.Fprintf(cmd.OutOrStdout(), "%s@%s\n", reference, digest)
			})
		},
	}
	cmd.Flags().StringVar(&key, "key", "", signedWith)
	return cmd
}

const signedWith = "public key, in PEM, that the checksums must be signed with"

// readPublicKey reads the public key of a file, or none if there is no file.
func readPublicKey(file string) (crypto.PublicKey, error) {
	if file == "" {
		return nil, nil
	}
	return release.ReadPublicKey(file)
}

func lockCommand() *cobra.Command {
	var platforms []string
	cmd := &cobra.Command{
		Use:   "lock FILE",
		Short: "Pin the current versions of Debian packages",
		Long: `Write the lock file again, with the current versions, in the host's Debian archives, of the
packages that it names and of their dependencies. The host's own lists of packages do not
change.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			lock, err := debian.Read(args[0])
			if err != nil {
				return err
			}
			for _, platform := range platforms {
				if err := program.KnownPlatform(platform); err != nil {
					return fmt.Errorf("--platform: %w", err)
				}
			}
			if len(platforms) == 0 {
				return errors.New("--platform: there must be at least one")
			}
			if err := lock.Refresh(cmd.Context(), platforms); err != nil {
				return err
			}
			return lock.Write(args[0])
		},
	}
	cmd.Flags().StringSliceVar(&platforms, "platform", []string{"linux/amd64", "linux/arm64"}, "platforms to pin packages for")
	return cmd
}

func bundleCommand() *cobra.Command {
	var check bool
	var binaries []string
	var key, parts string
	options := bundle.Options{}
	cmd := &cobra.Command{
		Use:   "bundle VERSION [RELEASE...]",
		Short: "Gather a version of this project in a directory",
		Long: `Gather a version of this project, such as v0.1.0, in _output/release/VERSION: the images and
packages of each release as make images has written them, all known releases by default;
the kubectl plugin; the series and the Go modules that it needs; the documentation; the
results of tests that this checkout has, of the parts that --parts names; a changelog; and
checksums. The directory is replaced as a whole. Images of other commits than the checkout's are
refused.

The changelog has the subjects of all commits since the last tag v* before this commit,
grouped by the areas of CONTRIBUTING.md. The version must be newer than that tag. Uncommitted
changes are refused. Create the tag of the version itself afterwards.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.Version, options.Releases = args[0], args[1:]
			var err error
			if options.Checkout, err = filepath.Abs(options.Checkout); err != nil {
				return err
			}
			if check {
				return bundle.Check(cmd.Context(), options)
			}
			if options.Plugin, err = directories(binaries, bundle.KnownPlatform); err != nil {
				return err
			}
			if options.Key, err = readKey(key); err != nil {
				return err
			}
			if parts != "" {
				if options.Parts, err = bundle.ReadParts(parts); err != nil {
					return fmt.Errorf("--parts: %w", err)
				}
			}
			options.Say = says(cmd)
			return bundle.Write(cmd.Context(), options)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&check, "check", false, "check whether a bundle of this version can be made, and write none")
	flags.StringVar(&options.Checkout, "checkout", ".", "directory of a checkout of this project")
	flags.StringArrayVar(&binaries, "bin", nil, "PLATFORM=DIRECTORY of the kubectl plugin, such as linux/amd64=_output/bin-linux-amd64")
	flags.StringVar(&options.URL, "url", "", "URL at which this directory will be published; without it there is no manifest for krew")
	flags.StringVar(&key, "key", "", "private key that signs SHA256SUMS, and has signed those of the images")
	flags.StringVar(&parts, "parts", "", "table of the parts of make test-all, PART RELEASE CONTENT, separated by tabs; without it the bundle has no table of results")
	cmd.MarkFlagsOneRequired("check", "bin")
	return cmd
}
