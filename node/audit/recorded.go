// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/tools/txtar"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// textType is that of the PEM block of a record. Between its first line and its last one are only
// letters that a log keeps as they are.
const textType = "WORKLOAD PARTITIONING RECORD"

// MaxRecord bounds the files of a record together, in bytes, where one is read: that of a node with 250 pods
// has about a tenth of it.
const MaxRecord = 64 << 20

// RecordText audits the node, and writes the archive that [Record] writes as text, which may pass
// through a log.
func RecordText(ctx context.Context, options Options, w io.Writer) error {
	result, _, files, err := record(ctx, options)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := pack(&archive, "record", result.Time.Time, files); err != nil {
		return err
	}
	return pem.Encode(w, &pem.Block{Type: textType, Bytes: archive.Bytes()})
}

// ParseText returns the files of the record in a text that [RecordText] wrote, by their names. Text before and
// after the record is passed over. A file that a record does not have is an error, and so are more bytes than [MaxRecord]:
// the text comes from a node, which may have written anything.
func ParseText(text []byte) (map[string][]byte, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != textType {
		return nil, errors.New("there is no complete record")
	}
	compressed, err := gzip.NewReader(bytes.NewReader(block.Bytes))
	if err != nil {
		return nil, fmt.Errorf("the record: %w", err)
	}
	files := map[string][]byte{}
	archive := tar.NewReader(io.LimitReader(compressed, MaxRecord))
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) && len(files) == len(recordFiles) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the record has %d of %d files within %d bytes: %w", len(files), len(recordFiles), MaxRecord, err)
		}
		name := path.Base(header.Name)
		if !slices.Contains(recordFiles, name) || files[name] != nil {
			return nil, fmt.Errorf("the record has a file %q", header.Name)
		}
		if files[name], err = io.ReadAll(archive); err != nil {
			return nil, fmt.Errorf("the record: %s: %w", name, err)
		}
	}
}

// mountNamespace is what the kernel names one.
var mountNamespace = regexp.MustCompile(`^mnt:\[[0-9]+\]$`)

// Recorded returns the options for an audit of a recorded node. record is a directory with the file node.txtar
// of a record, or this file. Its content is written below dir, an empty directory, and nothing outside of it, whatever
// the record says.
func Recorded(record, dir string) (Options, error) {
	if info, err := os.Stat(record); err == nil && info.IsDir() {
		record = filepath.Join(record, nodeFile)
	}
	file, err := os.Open(record)
	if err != nil {
		return Options{}, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxRecord+1))
	if err == nil && len(data) > MaxRecord {
		err = fmt.Errorf("it has more than %d bytes", MaxRecord)
	}
	if err != nil {
		return Options{}, fmt.Errorf("%s: %w", record, err)
	}
	runtime, err := unpack(data, dir)
	if err != nil {
		return Options{}, fmt.Errorf("%s: %w", record, err)
	}
	host := Host{Root: dir, Proc: filepath.Join(dir, "proc"), Sys: filepath.Join(dir, "sys"), KubeletRoot: defaultKubeletRoot, recorded: true}
	return Options{Host: host, Runtime: runtime, Settle: time.Nanosecond}, nil
}

// unpack writes the files of a node below dir.
func unpack(data []byte, dir string) (Runtime, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var listing *recordedRuntime
	for _, file := range txtar.Parse(data).Files {
		name := filepath.FromSlash(file.Name)
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return nil, err
		}
		text := strings.TrimSuffix(string(file.Data), "\n")
		switch {
		case strings.HasSuffix(file.Name, "/ns/mnt"):
			if !mountNamespace.MatchString(text) {
				return nil, fmt.Errorf("%s: %q is no mount namespace", file.Name, text)
			}
			err = root.Symlink(text, name)
		case file.Name == runtimeFile:
			if err = json.Unmarshal(file.Data, &listing); err != nil {
				err = fmt.Errorf("%s: %w", file.Name, err)
			}
		default:
			err = root.WriteFile(name, file.Data, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	if listing == nil {
		return nil, fmt.Errorf("it has no %s: it is no record of a node", runtimeFile)
	}
	return &replay{*listing}, nil
}

// replay is the runtime of a record: it answers as that of the node did.
type replay struct{ recordedRuntime }

// Version implements [Runtime].
func (r *replay) Version(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: cmp.Or(r.Name, "unknown"), RuntimeVersion: r.recordedRuntime.Version}, nil
}

// ListPodSandbox implements [Runtime].
func (r *replay) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	var answer runtimeapi.ListPodSandboxResponse
	for _, p := range r.Pods {
		answer.Items = append(answer.Items, &runtimeapi.PodSandbox{
			Id: p.ID, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: p.Annotations, RuntimeHandler: p.Handler,
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: p.Namespace, Name: p.Name, Uid: p.UID},
		})
	}
	return &answer, nil
}

// ListContainers implements [Runtime].
func (r *replay) ListContainers(context.Context, *runtimeapi.ListContainersRequest, ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	var answer runtimeapi.ListContainersResponse
	for _, p := range r.Pods {
		for _, c := range p.Containers {
			answer.Containers = append(answer.Containers, &runtimeapi.Container{
				Id: c.ID, PodSandboxId: p.ID, State: runtimeapi.ContainerState_CONTAINER_RUNNING, Metadata: &runtimeapi.ContainerMetadata{Name: c.Name},
			})
		}
	}
	return &answer, nil
}

// ContainerStatus implements [Runtime].
func (r *replay) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	for _, p := range r.Pods {
		for _, c := range p.Containers {
			if c.ID == in.ContainerId {
				return &runtimeapi.ContainerStatusResponse{Info: map[string]string{"info": fmt.Sprintf(`{"pid": %d}`, c.PID)}}, nil
			}
		}
	}
	return &runtimeapi.ContainerStatusResponse{}, nil
}
