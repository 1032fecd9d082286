// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

// files are those that TuneD and this program share. TuneD's constants (tuned/consts.py) have the names.
type files struct {
	// etc is /etc/tuned and run is /run/tuned, both directories of the host's /run.
	etc, run string
}

func (f files) storage() string { return filepath.Join(f.run, "save.pickle") }
func (f files) pid() string     { return filepath.Join(f.run, "tuned.pid") }
func (f files) signals() string { return filepath.Join(f.run, "signals.sock") }
func (f files) record() string  { return filepath.Join(f.run, "in-force.json") }
func (f files) boot() string    { return filepath.Join(f.run, "boot-id") }
func (f files) cmdline() string { return filepath.Join(f.etc, "bootcmdline") }

const profileFile = "tuned.conf"

// Record says what TuneD runs with, or ran with when it ended without undoing it.
type Record struct {
	// Profile is the name of the profile. Empty means that nothing is to be undone.
	Profile string `json:"profile"`
	// Hash tells a spec from all others.
	Hash string `json:"hash"`
	// UID and Generation are those of the Profile that had the spec.
	UID        types.UID `json:"uid"`
	Generation int64     `json:"generation"`
	// Debug makes TuneD log in detail, and ReapplySysctl lets the host's sysctl.d win. TuneD reads both only when it starts.
	Debug         bool `json:"debug,omitempty"`
	ReapplySysctl bool `json:"reapplySysctl,omitempty"`
}

// hashOf is empty for a Profile that asks for nothing.
func hashOf(profile *tunedv1.Profile) string {
	if profile == nil || profile.Spec.Config.TunedProfile == "" {
		return ""
	}
	data, err := json.Marshal(profile.Spec)
	if err != nil {
		panic(err) // it has only texts, numbers and booleans
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// read returns the record, which is empty if there is none or if it was cut off.
func (f files) read() (Record, error) {
	data, err := os.ReadFile(f.record())
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, err
	}
	var record Record
	if err := json.Unmarshal(data, &record); err != nil {
		return Record{}, fmt.Errorf("%s: %w", f.record(), err)
	}
	return record, nil
}

// booted reports whether no Profile was taken since the node booted, and removes what an earlier boot has left: the kernel's
// values are its own again, and nothing of it is to be undone.
func (f files) booted(id string) (bool, error) {
	data, err := os.ReadFile(f.boot())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A record without this file is an older version's, of this boot.
		_, err := os.Stat(f.record())
		return errors.Is(err, fs.ErrNotExist), absent(err)
	case err != nil || string(data) == id:
		return false, err
	case string(data) == atBoot+id:
		return true, nil
	}
	return true, f.clear(true)
}

// atBoot is before the boot's ID where Boot has applied a Profile, and Run has taken none since.
const atBoot = "at "

// appliedAtBoot returns when Boot has applied a Profile in this boot; zero if it has not, or if Run has taken one since.
func (f files) appliedAtBoot(id string) time.Time {
	if data, err := os.ReadFile(f.boot()); err != nil || string(data) != atBoot+id {
		return time.Time{}
	}
	info, err := os.Stat(f.boot())
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// taken records that a Profile was taken in this boot.
func (f files) taken(id string) error {
	if err := os.MkdirAll(f.run, 0o700); err != nil {
		return err
	}
	return replace(f.boot(), id)
}

// write gives TuneD the profiles of a spec, and only these, and its configuration.
func (f files) write(profile *tunedv1.Profile) (Record, error) {
	for _, directory := range []string{f.etc, f.run} {
		if err := os.MkdirAll(directory, 0o700); err != nil {
			return Record{}, err
		}
	}
	wanted := map[string]bool{}
	for _, p := range profile.Spec.Profile {
		if !safe(p.Name) {
			return Record{}, fmt.Errorf("spec.profile: %q is no name of a profile", p.Name)
		}
		wanted[p.Name] = true
		if err := os.MkdirAll(filepath.Join(f.etc, p.Name), 0o700); err != nil {
			return Record{}, err
		}
		if err := replace(filepath.Join(f.etc, p.Name, profileFile), p.Data); err != nil {
			return Record{}, err
		}
	}
	if err := f.remove(func(name string) bool { return !wanted[name] }); err != nil {
		return Record{}, err
	}
	config := profile.Spec.Config
	reapply := config.TunedConfig.ReapplySysctl == nil || *config.TunedConfig.ReapplySysctl
	for name, text := range map[string]string{
		"tuned-main.conf": f.configuration(reapply),
		"active_profile":  config.TunedProfile + "\n",
		// Automatic would let TuneD recommend a profile by itself.
		"profile_mode":        "manual\n",
		"post_loaded_profile": "",
		"bootcmdline":         "",
	} {
		if err := replace(filepath.Join(f.etc, name), text); err != nil {
			return Record{}, err
		}
	}
	record := Record{Profile: config.TunedProfile, Hash: hashOf(profile), UID: profile.UID, Generation: profile.Generation, Debug: config.Debug, ReapplySysctl: reapply}
	data, err := json.Marshal(record)
	if err != nil {
		return Record{}, err
	}
	return record, replace(f.record(), string(data))
}

// configuration is TuneD's tuned-main.conf. Nothing can call TuneD; what became of a profile it tells by its own socket protocol.
func (f files) configuration(reapplySysctl bool) string {
	reapply := 0
	if reapplySysctl {
		reapply = 1
	}
	return fmt.Sprintf(`daemon = 1
dynamic_tuning = 0
recommend_command = 0
reapply_sysctl = %d
enable_dbus = 0
enable_unix_socket = 1
unix_socket_path =
unix_socket_signal_paths = %s
`, reapply, f.signals())
}

// clear removes all files. What TuneD has not undone stays in its storage.
func (f files) clear(undone bool) error {
	var errs []error
	for _, directory := range []string{f.etc, f.run} {
		entries, err := os.ReadDir(directory)
		errs = append(errs, absent(err))
		for _, entry := range entries {
			if path := filepath.Join(directory, entry.Name()); undone || path != f.storage() {
				errs = append(errs, os.RemoveAll(path))
			}
		}
	}
	return errors.Join(errs...)
}

// remove removes profiles.
func (f files) remove(unwanted func(name string) bool) error {
	entries, err := os.ReadDir(f.etc)
	if err != nil {
		return absent(err)
	}
	for _, entry := range entries {
		if entry.IsDir() && unwanted(entry.Name()) {
			if err := os.RemoveAll(filepath.Join(f.etc, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// kernelArguments are those that TuneD has computed (BOOT_CMDLINE_TUNED_VAR in tuned/consts.py).
func (f files) kernelArguments() string {
	data, err := os.ReadFile(f.cmdline())
	if err != nil {
		return ""
	}
	// A value that goes on over several lines in the profile does so here. The argument at the end may end with a quote of its own.
	_, value, _ := strings.Cut("\n"+string(data), "\nTUNED_BOOT_CMDLINE=")
	value, _, _ = strings.Cut(value, "\nTUNED_BOOT_INITRD_ADD=")
	value = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(value), `"`), `"`)
	return strings.Join(strings.Fields(value), " ")
}

// safe reports whether a text can be the name of a directory in TuneD's. The operator accepts fewer.
func safe(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

func replace(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
