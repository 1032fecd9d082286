// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"workload.openshift.io/operators/workloadclasses"
	"workload.openshift.io/operators/workloadclasses/metrics"
)

// rules has the rules of a file, and reads it again when it changes.
type rules struct {
	path    string
	current atomic.Pointer[workloadclasses.Config]
	read    []byte // what current is of
}

// newRules reads a rules file. A mistake in the first one is an error.
func newRules(path string) (*rules, error) {
	r := &rules{path: path}
	return r, r.load()
}

// load reads the file, and takes its rules if they are new and valid.
func (r *rules) load() error {
	file, err := os.Open(r.path)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, workloadclasses.MaxFileSize+1))
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	if bytes.Equal(data, r.read) && r.current.Load() != nil {
		return nil
	}
	config, err := workloadclasses.ReadConfig(data)
	if err != nil {
		return fmt.Errorf("rules %s: %w", r.path, err)
	}
	r.read = data
	r.current.Store(config)
	return nil
}

// Start implements manager.Runnable.
func (r *rules) Start(ctx context.Context) error {
	logger, problem := klog.FromContext(ctx), ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rulesPeriod):
		}
		before := r.current.Load()
		if err := r.load(); err != nil {
			if problem != err.Error() {
				logger.Error(err, "Keeping the previous rules")
			}
			problem = err.Error()
			metrics.RulesInvalid.Set(1)
			continue
		}
		problem = ""
		metrics.RulesInvalid.Set(0)
		if r.current.Load() != before {
			logger.Info("Read new rules", "path", r.path)
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica answers.
func (r *rules) NeedLeaderElection() bool { return false }
