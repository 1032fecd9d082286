// SPDX-License-Identifier: Apache-2.0

// Package tidy sees to it that tests leave nothing on their host.
package tidy

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"workload.openshift.io/kubernetes/cluster/host"
)

// Run runs tests and returns their status. The tests make a directory, own it ([host.Own]), and
// keep in it what down needs to remove all that they have made.
//
// Down is called when the tests end, when they are interrupted, and shortly before go test's
// time limit would end the process. If the tests are killed, the next call of Run calls it
// first.
func Run(dir string, down func() error, tests func() int) (status int) {
	var removing sync.Mutex
	remove := func() {
		removing.Lock()
		defer removing.Unlock()
		if err := down(); err != nil {
			fmt.Println("not everything could be removed:", err)
			status = 1
		}
	}
	left, unlock, err := host.Take(dir)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = unlock() }()
	if left {
		fmt.Println("removing what killed tests have left")
		if remove(); status != 0 {
			return status
		}
	}
	defer remove()
	abandon := func(why string) {
		fmt.Println(why)
		host.End()
		remove()
		os.Exit(1)
	}
	// Who reads what is printed may have ended by the same signal. Then writes fail, and that is all.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, host.EndSignals()...)
	go func() { abandon(fmt.Sprintf("interrupted by %s", <-interrupted)) }()
	if limit, ok := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration); ok && limit > 0 {
		time.AfterFunc(limit-2*time.Minute, func() { abandon("the tests take too long") })
	}
	return tests()
}
