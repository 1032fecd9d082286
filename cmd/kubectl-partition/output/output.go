// SPDX-License-Identifier: Apache-2.0

// Package output is how the commands of kubectl-partition print a result: as a table for
// people, or as a versioned object for programs.
package output

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"
	"workload.openshift.io/kubernetes/node/result"
)

// APIVersion is that of all results.
const APIVersion = result.APIVersion

// TypeMeta is [result.TypeMeta].
func TypeMeta(kind string) metav1.TypeMeta { return result.TypeMeta(kind) }

// Format is the value of the flag -o. The zero value prints a table.
type Format string

// The formats that all commands have, besides the table.
const (
	Wide Format = "wide"
	JSON Format = "json"
	YAML Format = "yaml"
)

// Flag adds -o to a command, with its completion. Some commands have further formats.
func (f *Format) Flag(command *cobra.Command, further ...Format) {
	known := append([]Format{JSON, YAML, Wide}, further...)
	names := make([]string, len(known))
	for i, format := range known {
		names[i] = string(format)
	}
	command.Flags().VarP(&value{f, known}, "output", "o", "print "+strings.Join(names, ", ")+"; a table is the default")
	utilruntime.Must(command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)))
}

// Print writes a result as JSON or YAML, or calls table.
func (f Format) Print(w io.Writer, result any, table func(w io.Writer, wide bool) error) error {
	switch f {
	case JSON:
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(result)
	case YAML:
		data, err := yaml.Marshal(result)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	buffered := bufio.NewWriter(w) // which keeps the first error
	if err := table(buffered, f == Wide); err != nil {
		return err
	}
	return buffered.Flush()
}

type value struct {
	format *Format
	known  []Format
}

func (v *value) String() string { return string(*v.format) }
func (v *value) Type() string   { return "format" }
func (v *value) Set(text string) error {
	if !slices.Contains(v.known, Format(text)) {
		return fmt.Errorf("the format must be one of %v", v.known)
	}
	*v.format = Format(text)
	return nil
}
