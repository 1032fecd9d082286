// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/procfs"
	"k8s.io/client-go/rest"
)

// liveHeap collects the garbage of a kubelet or a kube-apiserver, and returns the size of what is
// left, in bytes. The request is one for its /debug/pprof/heap.
func liveHeap(t testing.TB, request *rest.Request) float64 {
	t.Helper()
	text, err := request.Param("gc", "1").Param("debug", "1").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "# HeapAlloc = "); found {
			var bytes float64
			if _, err := fmt.Sscan(value, &bytes); err != nil {
				t.Fatal(err)
			}
			return bytes
		}
	}
	t.Fatal("the profile of the heap does not say how large it is")
	return 0
}

// goroutines returns how many a kubelet or a kube-apiserver has. The request is one for its
// /debug/pprof/goroutine.
func goroutines(t testing.TB, request *rest.Request) (count float64) {
	t.Helper()
	text, err := request.Param("debug", "1").DoRaw(t.Context())
	if err == nil {
		_, err = fmt.Sscanf(string(text), "goroutine profile: total %f", &count)
	}
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// resident returns the resident memory of a process, in bytes, and how many files it has open.
func resident(t testing.TB, pid int) (bytes, files float64) {
	t.Helper()
	process, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := process.Stat()
	if err != nil {
		t.Fatal(err)
	}
	open, err := process.FileDescriptorsLen()
	if err != nil {
		t.Fatal(err)
	}
	return float64(stat.ResidentMemory()), float64(open)
}

// meanOf returns the mean of values, and its standard error.
func meanOf(values []float64) (mean, standardError float64) {
	n := float64(len(values))
	var sum, squares float64
	for _, value := range values {
		sum += value
		squares += value * value
	}
	mean = sum / n
	return mean, math.Sqrt(max(0, squares/n-mean*mean) / (n - 1))
}
