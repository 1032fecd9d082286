// Package tidy has tests leave nothing on their host.
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

// Run returns the status of tests that make a directory, own it ([host.Own]), and put there
// what tells down what to remove. Down is called when the tests end, when they are
// interrupted, and before go test's time limit would end the process without it. If they
// are killed, the next ones call it.
func Run(dir string, down func() error, tests func() int) (status int) {
	var removing sync.Mutex
	remove := func() {
		removing.Lock()
		defer removing.Unlock()
		if err := down(); err != nil {
			fmt.Println("down:", err)
			status = 1
		}
	}
	if _, err := os.Stat(dir); err == nil {
		if !host.Abandoned(dir) {
			fmt.Printf("%s is in use, or was: by tests that still run, or by what make down or make vm-down removes\n", dir)
			return 1
		}
		fmt.Println("removing what tests left that were killed")
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
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() { abandon(fmt.Sprintf("interrupted by %s", <-interrupted)) }()
	if limit, ok := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration); ok && limit > 0 {
		time.AfterFunc(limit-2*time.Minute, func() { abandon("the tests take too long") })
	}
	return tests()
}
