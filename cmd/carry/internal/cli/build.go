// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/build"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

func buildCommand() *cobra.Command {
	var unpatched, races, fips, exactGo bool
	var platform string
	cmd := &cobra.Command{
		Use:   "build [RELEASE] [BINARY...]",
		Short: "Build the release's binaries with the series",
		Long: `Build binaries with upstream's own make rules, flags, tags and Go version into
_output/RELEASE/bin, kubelet linked statically. The version is
RELEASE` + project.VersionSuffix + `COMMIT, where COMMIT is the tree's. SHA256SUMS in the same directory
names their checksums and the toolchain. The same commit gives the same bytes in any directory.

Binaries, all by default: ` + build.BinaryList() + `.
Others are built only by name: ` + build.OtherBinaryList() + `.

The Go version is the one that upstream released with. If it cannot be downloaded, or
with FORCE_HOST_GO=y, the installed one is used. With --exact-go the build fails
instead, as the build of a release must.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, wanted, err := treeAndRest(args)
			if err != nil {
				return err
			}
			source := build.Patched
			switch {
			case unpatched:
				source = build.Upstream
			case races:
				source = build.RaceDetecting
			case fips:
				source = build.FIPS
			}
			return t.Locked(cmd.Context(), func() error {
				if err := t.Update(cmd.Context()); err != nil {
					return err
				}
				return build.Binaries(cmd.Context(), t, source, platform, exactGo, wanted)
			})
		},
	}
	cmd.Flags().StringVar(&platform, "platform", build.HostPlatform, "build for another platform, such as linux/arm64, into a directory such as _output/RELEASE/bin-linux-arm64")
	cmd.Flags().BoolVar(&exactGo, "exact-go", false, "fail if the Go version that upstream released with cannot be downloaded")
	cmd.Flags().BoolVar(&unpatched, "upstream", false, "build upstream's own source, without the series, into _output/RELEASE/upstream-bin")
	cmd.Flags().BoolVar(&races, "race", false, "build programs that report data races, into _output/RELEASE/race-bin")
	cmd.Flags().BoolVar(&fips, "fips", false, "build programs in FIPS mode, with the certified version of Go's cryptographic module, into _output/RELEASE/fips-bin; their version ends with -fips")
	cmd.MarkFlagsMutuallyExclusive("upstream", "race", "fips")
	return cmd
}
