// SPDX-License-Identifier: Apache-2.0

package tuning

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	tunedv1 "workload.openshift.io/operators/api/tuned/v1"
)

// PoolProfile returns the profile that all nodes of a pool get, whatever their labels are: that of the best entry without match.
// Only such an entry gives kernel arguments, since a pool's nodes boot with one configuration. Tuneds are the pool's own, without
// the default. It is empty if there is none, or if the default wins over it.
func PoolProfile(tuneds []tunedv1.Tuned) string {
	whole := make([]tunedv1.Tuned, 0, len(tuneds))
	for _, tuned := range tuneds {
		tuned.Spec.Recommend = slices.DeleteFunc(slices.Clone(tuned.Spec.Recommend), func(entry tunedv1.TunedRecommend) bool { return len(entry.Match) > 0 })
		whole = append(whole, tuned)
	}
	choice, _ := Choose(Node{}, whole)
	if choice.Priority > nodePriority || choice.Priority == nodePriority && choice.Tuned > tunedv1.DefaultName {
		return ""
	}
	return choice.Profile
}

// Report is what is known of one node whose profile is the pool's.
type Report struct {
	Node string
	// Waits says why its arguments are not known yet. It is empty if they are.
	Waits string
	// Arguments are those that it computed; none of these counts if any are refused.
	Arguments []string
	Refused   []Refusal
}

// Settled is which kernel arguments a pool has, and for which input.
type Settled struct {
	// Input is the hash of the pool's configuration.
	Input string
	// Computed is false if no node was there to compute those that nodes have to compute.
	Computed bool
	// Arguments are in the order of the command line.
	Arguments []string
}

// Settlement is what becomes of a pool's kernel arguments.
type Settlement struct {
	// Settled is what the pool has from now on; nil while that is not known for the first time.
	*Settled
	// Agreement says whether the pool has what its configuration asks for, and why not.
	Agreement Agreement
	Message   string
	// Outdated are the arguments that all nodes compute now, if they are others than those of the same configuration before;
	// nil if they are not. An upgrade of the operand does that. They take effect with the next change, or once a person asks.
	Outdated []string
	// Approved is what is left of a person's approval: none once the pool has something else, since years later an operand may compute the
	// same again.
	Approved string
}

// Agreement is a reason of a condition.
type Agreement string

// The agreements.
const (
	// Agreed means that all nodes compute the same arguments.
	Agreed Agreement = "AsExpected"
	// NotComputed means that there is no node to compute any.
	NotComputed Agreement = "NotComputed"
	// WaitingForNodes means that some nodes have not said yet what they compute.
	WaitingForNodes Agreement = "WaitingForNodes"
	// NodesDisagree means that nodes compute different arguments.
	NodesDisagree Agreement = "NodesDisagree"
	// InvalidConfiguration means that the configuration cannot be used, and what was valid last still counts.
	InvalidConfiguration Agreement = "InvalidConfiguration"
	// ArgumentsRefused means that a node reports arguments that its profile does not have, or leaves out those that it has.
	ArgumentsRefused Agreement = "KernelArgumentsRefused"
)

// Settle decides about the kernel arguments of a pool with an input. Reports are those of all its nodes whose profile is the
// pool's; stands is what the pool has, or nil; approved is the ArgumentsHash of what a person asked to apply, or empty.
//
// What stands for the same input changes only where it was not computed, or is approved: neither an upgrade of the operand nor
// a node that joins changes anything.
func Settle(input string, requested Requested, reports []Report, stands *Settled, approved string) Settlement {
	s := Settlement{Settled: stands, Approved: approved}
	var refused, waiting []string
	agreed, differs := []string(nil), ""
	for i, report := range reports {
		switch {
		case len(report.Refused) > 0:
			for _, each := range report.Refused {
				refused = append(refused, fmt.Sprintf("node %s: %s", report.Node, each))
			}
		case report.Waits != "":
			waiting = append(waiting, fmt.Sprintf("node %s: %s", report.Node, report.Waits))
		case agreed == nil:
			agreed = append([]string{}, reports[i].Arguments...)
		case !slices.Equal(agreed, report.Arguments) && differs == "":
			differs = fmt.Sprintf("node %s computes %s, and others compute %s; different kernel arguments need different NodePools", report.Node, line(report.Arguments), line(agreed))
		}
	}
	same := stands != nil && stands.Input == input && stands.Computed
	switch {
	case len(refused) > 0:
		s.Agreement, s.Message = ArgumentsRefused, several(refused)
		return s
	case differs != "":
		s.Agreement, s.Message = NodesDisagree, differs
		return s
	case len(waiting) > 0 && !same:
		s.Agreement, s.Message = WaitingForNodes, several(waiting)
		return s
	case len(waiting) > 0: // a node that joins
		s.Agreement = Agreed
		return s
	}
	if agreed == nil {
		if same {
			s.Agreement = Agreed
			return s
		}
		literal, complete := requested.Literal()
		if s.Agreement = Agreed; !complete {
			s.Agreement, s.Message = NotComputed, "the pool has no node that computes the rest; a first one boots a second time, or is replaced, if there is any"
		}
		s.Settled, s.Approved = &Settled{Input: input, Computed: complete, Arguments: append([]string{}, literal...)}, ""
		return s
	}
	s.Agreement = Agreed
	if same && !slices.Equal(stands.Arguments, agreed) && approved != ArgumentsHash(agreed) {
		s.Outdated = agreed
		s.Message = fmt.Sprintf("the nodes compute %s now, and boot with %s; that takes effect with the next change of the pool, or with kubectl partition tuning apply-arguments", line(agreed), line(stands.Arguments))
		return s
	}
	if !same || !slices.Equal(stands.Arguments, agreed) {
		s.Settled, s.Approved = &Settled{Input: input, Computed: true, Arguments: agreed}, ""
	}
	return s
}

// ArgumentsHash tells lists of arguments apart.
func ArgumentsHash(arguments []string) string {
	sum := sha256.Sum256([]byte(strings.Join(arguments, " ")))
	return hex.EncodeToString(sum[:8])
}

func line(arguments []string) string {
	if len(arguments) == 0 {
		return "none"
	}
	return strings.Join(arguments, " ")
}

// several joins the first of some texts. It does not say how many more there are: that changes with each report of a node, and each change
// is two writes in the management cluster.
func several(texts []string) string {
	const most = 5
	slices.Sort(texts)
	if len(texts) > most {
		texts = append(texts[:most], "and others")
	}
	return strings.Join(texts, "; ")
}
