// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestTheCompilerOfImagesIsVouchedFor has a proxy with a compiler that Go has never released. go itself runs it under
// the settings of some rows, and must not once scripts/vouched.sh was sourced.
func TestTheCompilerOfImagesIsVouchedFor(t *testing.T) {
	const version = "go1.999.1"
	platform := runtime.GOOS + "-" + runtime.GOARCH
	proxy := t.TempDir()
	at := filepath.Join(proxy, "golang.org", "toolchain", "@v", "v0.0.1-"+version+"."+platform)
	write(t, at+".info", `{"Version":"v0.0.1-`+version+"."+platform+`"}`)
	write(t, at+".mod", "module golang.org/toolchain\n")
	archive, err := os.Create(at + ".zip")
	if err != nil {
		t.Fatal(err)
	}
	files := zip.NewWriter(archive)
	for name, content := range map[string]string{"go.mod": "module golang.org/toolchain\n", "bin/go": "#!/bin/sh\necho planted\n", "pkg/tool/compile": "", "lib/x": "", "bin/gofmt": ""} {
		file, err := files.Create("golang.org/toolchain@v0.0.1-" + version + "." + platform + "/" + name)
		if err == nil {
			_, err = file.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	// go takes a build for its own proxy's by that proxy's host, which its default names.
	defaults := exec.CommandContext(t.Context(), "go", "env", "GOPROXY")
	defaults.Env = append(os.Environ(), "GOENV=off", "GOPROXY=")
	list, err := defaults.Output()
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(list)), ",")
	ownProxy := strings.TrimPrefix(first, "https://")
	for name, test := range map[string]struct {
		settings []string
		// alone says whether go runs it without the script.
		alone bool
	}{
		"a directory, and no database":                {[]string{"GOSUMDB=off"}, true},
		"a directory, and compilers are private":      {[]string{"GONOSUMDB=golang.org/toolchain", "GOSUMDB=sum.golang.org http://127.0.0.1:1"}, true},
		"a list, and no database":                     {[]string{"GOSUMDB=off", "GOPROXY=file://" + proxy + ",off"}, false},
		"a list, no database, and the proxy's builds": {[]string{"GOSUMDB=off", "GOPROXY=file://" + proxy + ",off", "GIT_HTTP_USER_AGENT=" + ownProxy}, true},
		"a directory, no database, as go env -w":      {[]string{"GOENV=" + filepath.Join(proxy, "env"), "GOPROXY="}, true},
	} {
		t.Run(name, func(t *testing.T) {
			write(t, filepath.Join(proxy, "env"), "GOPROXY=file://"+proxy+"\nGOSUMDB=off\n")
			for _, sourced := range []bool{false, true} {
				script := "go version"
				if sourced {
					script = "source scripts/vouched.sh; go version"
				}
				cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
				cmd.Dir = root
				cmd.Env = append(os.Environ(), "GOPROXY=file://"+proxy, "GOSUMDB=", "GONOSUMDB=", "GOPRIVATE=", "GOFLAGS=-modcacherw", "GOMODCACHE="+t.TempDir(), "GOTOOLCHAIN="+version)
				cmd.Env = append(cmd.Env, test.settings...)
				out, _ := cmd.CombinedOutput()
				if ran := strings.Contains(string(out), "planted"); ran != (test.alone && !sourced) {
					t.Errorf("with the script: %v; it runs: %v; go says\n%s", sourced, ran, out)
				}
			}
		})
	}
}
