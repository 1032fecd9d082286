// SPDX-License-Identifier: Apache-2.0

package kubeletstate

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// Configuration reads a kubelet's configuration as the kubelet does: the file, then each drop-in of
// the directory in the order of their paths, as a merge patch (cmd/kubelet/app/server.go,
// mergeKubeletConfigurations). Either may be empty, which means that the kubelet has none. It
// returns JSON, and the paths of the drop-ins. An error names the file.
func Configuration(file, directory string) (merged []byte, dropIns []string, err error) {
	merged = []byte("{}")
	if file != "" {
		if merged, err = readYAML(file); err != nil {
			return nil, nil, err
		}
	}
	if directory == "" {
		return merged, nil, nil
	}
	if dropIns, err = DropIns(directory); err != nil {
		return nil, nil, err
	}
	for _, path := range dropIns {
		data, err := ReadFile(path)
		if err == nil {
			merged, err = MergeDropIn(merged, data)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("drop-in %s: %w", path, err)
		}
	}
	return merged, dropIns, nil
}

// DropIns returns the paths of a directory's drop-ins, in the order in which the kubelet reads them.
func DropIns(directory string) (paths []string, err error) {
	err = filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".conf" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("drop-ins of the kubelet: %w", err)
	}
	return paths, nil
}

// MergeDropIn merges a drop-in, as YAML, into a configuration, as JSON. One with which the kubelet would not start is an
// error.
func MergeDropIn(merged, dropIn []byte) ([]byte, error) {
	patch, err := yaml.YAMLToJSON(dropIn)
	if err != nil {
		return nil, err
	}
	var kind metav1.TypeMeta
	if err := json.Unmarshal(patch, &kind); err != nil {
		return nil, err
	}
	if want := v1beta1.SchemeGroupVersion.WithKind("KubeletConfiguration"); kind.GroupVersionKind() != want {
		return nil, fmt.Errorf("apiVersion %q and kind %q: the kubelet does not start unless they are %q and %q", kind.APIVersion, kind.Kind, want.GroupVersion(), want.Kind)
	}
	return jsonpatch.MergePatch(merged, patch)
}

func readYAML(path string) ([]byte, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	if data, err = yaml.YAMLToJSON(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// MaxFile is the largest file that is read, in bytes.
const MaxFile = 10 << 20

// ReadFile returns a file of the node's disk. One that is not regular, such as a pipe, or larger
// than MaxFile is an error.
func ReadFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxFile {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, MaxFile)
	}
	return io.ReadAll(io.LimitReader(file, MaxFile))
}
