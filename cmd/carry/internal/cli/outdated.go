// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"workload.openshift.io/kubernetes/cmd/carry/internal/outdated"
	"workload.openshift.io/kubernetes/cmd/carry/internal/project"
)

func outdatedCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "outdated",
		Short: "See which known releases are not upstream's newest",
		Long: `Compare the known releases with what the go command lists and can fetch. The table
has a line for each known release, after those of newer minor versions:

  RELEASE  the known release, or - for a newer minor version
  NEWEST   the newest release of its minor version that can be downloaded: upstream's module and
           all staging modules that a binary needs, each with a checksum. Of a newer minor
           version without a release it is the newest pre-release.
  SUPPORT  until and the last month of upstream's support, or ended and that month:
           ` + fmt.Sprint(project.SupportMonths) + ` months after the first release of the minor version (KEP-1498)
  NEXT     the command that takes the newest, or -

The table is followed by a line for each newer release that is listed but cannot be
downloaded, with the modules at fault. What was downloaded stays in go's module cache.

The exit code is 0 if nothing newer can be downloaded, 1 if something can, and 2 for any
other error, such as a network failure. Pre-releases do not count.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return ExitError{2, err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return ExitError{2, fmt.Errorf("--output %q is neither table nor json", output)}
			}
			checkout, err := project.Find()
			if err != nil {
				return ExitError{2, err}
			}
			rows, err := outdated.Ask(cmd.Context(), checkout, time.Now())
			if err != nil {
				return ExitError{2, err}
			}
			if output == "json" {
				data, err := json.MarshalIndent(rows, "", "  ")
				if err != nil {
					return ExitError{2, err}
				}
				fmt.Println(string(data))
			} else {
				fmt.Print(outdated.Table(rows))
			}
			newer := 0
			for _, row := range rows {
				if row.Outdated() {
					newer++
				}
			}
			if newer > 0 {
				return ExitError{1, fmt.Errorf("outdated: %d newer releases can be downloaded", newer)}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return ExitError{2, err} })
	cmd.Flags().StringVarP(&output, "output", "o", "table", "the form: table or json")
	return cmd
}
