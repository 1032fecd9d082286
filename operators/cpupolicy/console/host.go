// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"workload.openshift.io/operators/api/cpupolicy/nodestatus"
	"workload.openshift.io/operators/cpupolicy"
	"workload.openshift.io/operators/cpupolicy/policyclient"
)

// label is what people call the request for a policy.
func label(policy cpupolicy.Policy) string {
	if policy == cpupolicy.Static {
		return "Enable CPU Manager"
	}
	return "Disable CPU Manager"
}

// hostRow is a node with what can be done to it.
type hostRow struct {
	policyclient.Node
	// Attribute is the label cpumanager.
	Attribute string
	// Next is the policy to ask for; empty if it is not known what makes sense. Why says why it cannot be asked for now.
	Next cpupolicy.Policy
	Why  string
	// From is the page to come back to.
	From string
}

// rowOf decides by the label what can be asked for, and where there is none by what was observed.
func rowOf(n policyclient.Node, from string) hostRow {
	row := hostRow{Node: n, Attribute: "unknown", From: from}
	if n.CPUManager != nil {
		row.Attribute = fmt.Sprint(*n.CPUManager)
	}
	switch {
	case row.Attribute == "true", row.Attribute == "unknown" && n.Policy == "static":
		row.Next = "none"
	case row.Attribute == "false", n.Policy == "none":
		row.Next = "static"
	default:
		row.Why = "The node has no label cpumanager yet, and its policy was not observed."
	}
	if row.Next != "" && n.UnderWay() {
		row.Why = underWay(n)
	}
	return row
}

func underWay(n policyclient.Node) string {
	return fmt.Sprintf("The policy %s is %s.", n.Requested, n.State)
}

// addNode shows what is under way on a node, and what has failed: that stays until the next request.
func (p *page) addNode(n policyclient.Node) {
	if n.State == nodestatus.Failed {
		p.Alerts = append(p.Alerts, alert{fmt.Sprintf("%s has failed on %s", label(n.Requested), n.Name), cmp.Or(n.Message, "The node gave no reason.")})
	}
	if n.UnderWay() {
		p.Status = append(p.Status, fmt.Sprintf("%s: %s", n.Name, underWay(n)))
	}
}

func (s *server) hosts(w http.ResponseWriter, r *http.Request) error {
	list, err := s.client.Kube.CoreV1().Nodes().List(r.Context(), metav1.ListOptions{Limit: s.pageSize, Continue: r.URL.Query().Get("from")})
	if err != nil {
		return err
	}
	p := s.open("Hosts", "hosts")
	rows := []hostRow{}
	for i := range list.Items {
		n := policyclient.NodeOf(&list.Items[i])
		p.addNode(n)
		rows = append(rows, rowOf(n, "hosts"))
	}
	p.Body, p.Next = rows, next(r, list.Continue)
	render(w, http.StatusOK, "hosts", p)
	return nil
}

// hostDetail is what the page of one node has.
type hostDetail struct {
	hostRow
	// Unobserved says why nobody knows the policy in force; empty if it is known.
	Unobserved string
	// Checked says whether Findings say what a request would meet, and Unchecked why they do not.
	Checked   bool
	Unchecked string
	Findings  []string
}

func (s *server) host(w http.ResponseWriter, r *http.Request) error {
	object, err := s.client.Kube.CoreV1().Nodes().Get(r.Context(), r.URL.Query().Get("name"), metav1.GetOptions{})
	if err != nil {
		return err
	}
	n := policyclient.NodeOf(object)
	p := s.open("Host "+n.Name, "hosts")
	p.addNode(n)
	detail := hostDetail{hostRow: rowOf(n, "host")}
	if n.Policy == "" {
		why, err := s.client.LastWarning(r.Context(), object)
		if err != nil {
			why = err.Error()
		}
		detail.Unobserved = cmp.Or(why, "It was not observed since the node booted.")
	}
	switch {
	case detail.Next == "":
		detail.Unchecked = "It is not known what could be asked for."
	case n.UnderWay():
		detail.Unchecked = underWay(n)
	default:
		s.check(r, &detail)
	}
	p.Body = detail
	render(w, http.StatusOK, "host", p)
	return nil
}

// check adds what a request would meet, as the webhook says it of one that writes nothing.
func (s *server) check(r *http.Request, detail *hostDetail) {
	ctx, warned := collectWarnings(r.Context())
	_, err := s.client.Ask(ctx, policyclient.Request{Node: detail.Name, Policy: detail.Next, DryRun: true})
	var refused *policyclient.RefusedError
	if err != nil && !errors.As(err, &refused) {
		detail.Unchecked = err.Error()
		return
	}
	detail.Checked = true
	if refused != nil {
		detail.Findings = refused.Texts()
	}
	for _, text := range *warned {
		detail.Findings = append(detail.Findings, "Warning: "+text)
	}
}

func (s *server) switchPolicy(w http.ResponseWriter, r *http.Request) error {
	name, policy := r.PostFormValue("name"), cpupolicy.Policy(r.PostFormValue("policy"))
	back := "hosts"
	if r.PostFormValue("from") == "host" {
		back = "host?" + url.Values{"name": {name}}.Encode()
	}
	_, err := s.client.Ask(r.Context(), policyclient.Request{Node: name, Policy: policy})
	var refused *policyclient.RefusedError
	if errors.As(err, &refused) {
		err = errors.New(strings.Join(refused.Texts(), "\n")) // the title says the rest
	}
	s.done(w, r, fmt.Sprintf("%s was refused on %s", label(policy), name), back, err)
	return nil
}
