// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"workload.openshift.io/operators/api/cpupolicy/operation"
	"workload.openshift.io/partition"
)

// reservationName is the name of the drop-in with the reservation, without its end: Harvester's.
const reservationName = "99-z00-harvester-reserved-resources"

// Reserve writes a reservation of CPU, the full amount for the kubelet's side and for the system's,
// where a driver's kubelet reads it when it starts next. formula returns the amount for a number
// of CPUs and the most pods of the node. maxPods is that number; zero means what rke2's configuration
// says, what a kubelet that runs has, or upstream's default, the first that there is. Reserve returns the path and the amount.
func (h *Host) Reserve(ctx context.Context, driverName operation.Driver, formula func(cpus, maxPods int) resource.Quantity, maxPods int) (path string, amount resource.Quantity, err error) {
	online, err := h.online()
	if err != nil {
		return "", amount, err
	}
	path, content := "", ""
	switch driverName {
	case operation.DriverRKE2:
		if maxPods == 0 {
			if maxPods, err = h.maxPodsOfRKE2(ctx); err != nil {
				return "", amount, err
			}
		}
		path, content = filepath.Join(rke2Config+".d", reservationName+".yaml"), "kubelet-arg+:\n- \"system-reserved=cpu=%[1]s\"\n- \"kube-reserved=cpu=%[1]s\"\n"
		if err := h.disk.mkdir(filepath.Dir(path)); err != nil {
			return "", amount, err
		}
	default:
		k, err := h.running(ctx, driverName)
		if err != nil {
			return "", amount, err
		}
		if k.flags.configDir == "" {
			return "", amount, errors.New("the kubelet has no --config-dir; run: partition-agent cpu-policy prepare")
		}
		if maxPods == 0 {
			maxPods = k.maxPods()
		}
		path, content = filepath.Join(k.flags.configDir, reservationName+".conf"), "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nsystemReserved: {cpu: \"%[1]s\"}\nkubeReserved: {cpu: \"%[1]s\"}\n"
	}
	amount = formula(online.Size(), cmp.Or(maxPods, defaultMaxPods))
	return path, amount, h.putDropIn(path, fmt.Sprintf(content, amount.String()))
}

// defaultMaxPods is upstream's (pkg/kubelet/apis/config/v1beta1, SetDefaults_KubeletConfiguration).
const defaultMaxPods = 110

// maxPods returns the most pods of a kubelet; zero if nobody has set that.
func (k *kubelet) maxPods() int {
	most, _ := strconv.Atoi(k.flags.maxPods)
	return cmp.Or(most, int(k.config.MaxPods))
}

// maxPodsOfRKE2 returns the most pods of rke2's kubelet; zero if nobody has set that.
func (h host) maxPodsOfRKE2(ctx context.Context) (int, error) {
	args, err := readRKE2(h.disk)
	if err != nil {
		return 0, err
	}
	if most, err := strconv.Atoi(last(effective(args), "max-pods").value); err == nil {
		return most, nil
	}
	k, err := h.running(ctx, operation.DriverRKE2)
	if err != nil {
		return 0, nil // a host may be prepared before rke2 runs
	}
	return k.maxPods(), nil
}

// running returns the kubelet that runs.
func (h host) running(ctx context.Context, name operation.Driver) (*kubelet, error) {
	driver, err := h.driver(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	defer driver.close()
	return driver.kubelet(ctx)
}

// putDropIn writes a drop-in, unless somebody could replace it or it is not a regular file.
func (h host) putDropIn(path, content string) error {
	if err := h.checkWay(path); err != nil {
		return err
	}
	if _, err := h.disk.read(path); err != nil {
		return err
	}
	return put(h.disk, path, &File{[]byte(content), 0o600})
}

const (
	preparedName      = "99-partition-agent-config-dir.conf"
	preparedConfigDir = "/etc/kubernetes/kubelet.conf.d"
)

// Prepare gives the kubelet of the driver kubelet a --config-dir, by a drop-in of its unit: the
// unit's command line with that flag. The kubelet has it when it starts next. Prepare returns the
// path of the drop-in, and none if the kubelet has a --config-dir.
func (h *Host) Prepare(ctx context.Context) (path string, err error) {
	s, err := dialSystemd(ctx, h.disk)
	if err != nil {
		return "", err
	}
	defer s.close()
	name := cmp.Or(h.settings.Unit, defaultUnit)
	u, err := s.properties(ctx, name)
	if err != nil {
		return "", err
	}
	if err := u.check(name); err != nil {
		return "", err
	}
	k := &kubelet{}
	if err := k.flags.parse(u.execStart[1:]); err != nil {
		return "", err
	}
	if pid, err := s.below(u.mainPID, "kubelet"); err != nil {
		return "", err
	} else if pid != 0 {
		if k, err = h.kubeletOf(pid, u.execStart, u.files, ""); err != nil {
			return "", err
		}
	}
	if k.flags.configDir != "" {
		return "", nil
	}
	if filepath.Base(u.execStart[0]) != "kubelet" {
		return "", fmt.Errorf("unit %s: ExecStart runs %s, and not the kubelet itself; give the kubelet --config-dir=%s there", name, u.execStart[0], preparedConfigDir)
	}
	// A kubelet does not start without the directory.
	for _, dir := range []string{filepath.Dir(preparedConfigDir), preparedConfigDir, filepath.Join(unitDirectory, name+".d")} {
		if err := h.disk.mkdir(dir); err != nil {
			return "", err
		}
		if err := h.disk.sync(filepath.Dir(dir)); err != nil {
			return "", err
		}
	}
	if err := h.checkWay(filepath.Join(preparedConfigDir, dropInName)); err != nil {
		return "", err
	}
	path = filepath.Join(unitDirectory, name+".d", preparedName)
	content := "# Written by partition-agent cpu-policy prepare. Remove it only with the drop-ins in the directory.\n[Service]\nExecStart=\nExecStart=" + execLine(append(u.execStart, "--config-dir="+preparedConfigDir)) + "\n"
	if err := h.checkWay(path); err != nil {
		return "", err
	}
	if err := put(h.disk, path, &File{[]byte(content), 0o644}); err != nil {
		return "", err
	}
	return path, s.conn.ReloadContext(ctx)
}

// execLine returns a command line as a unit has it (systemd.service(5), command lines). Variables
// stay variables: systemd has not replaced them in what it says of a unit.
func execLine(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = strings.ReplaceAll(arg, "%", "%%")
		if arg == "" || strings.ContainsAny(arg, " \t\n\"'\\;") {
			quoted[i] = strconv.Quote(quoted[i])
		}
	}
	return strings.Join(quoted, " ")
}

// checkWay returns an error if others than a directory's owner can replace the file, or a directory on the way to it.
func (h host) checkWay(path string) error {
	if _, err := partition.CheckDirectories(h.disk.at(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
