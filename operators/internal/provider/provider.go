// SPDX-License-Identifier: Apache-2.0

// Package provider plays a provider of machines in tests, by the contract of docs/user/nodepools.md: it reads what a NodePool says
// and the Secret that this names, and nothing else. Its machines are imagined, or those that a test boots. It counts their boots.
package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ignition "github.com/coreos/ignition/v2/config/v3_3"
	"github.com/vincent-petithory/dataurl"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"workload.openshift.io/operators/api/nodegroup"
	"workload.openshift.io/operators/api/nodepool/v1beta1"
	"workload.openshift.io/operators/nodeclient"
)

// Machine is one machine of a pool, with what it booted last.
type Machine struct {
	Name, Pool string
	// Config is the hash of the configuration, BootID another one for each boot, and Boots how many there were after the first.
	Config, BootID string
	Boots          int
	// Arguments are those of /proc/cmdline that the configuration brought, and Files what it wrote, by path: also systemd's units, in
	// the directory of the administrator's. Modes are the files' permissions, and Units are those of the units that start at a boot.
	Arguments []string
	Files     map[string]string
	Modes     map[string]int
	Units     []string
	// target is what it boots next, while it is down; it is empty while the machine is up.
	target string
}

// Provider keeps the machines of one hosted cluster as its NodePools say.
type Provider struct {
	// Home and Hosted write; nothing is cached. Pools is the namespace of the NodePools.
	Home, Hosted client.Client
	Pools        string
	// Boot boots a real machine with what it is to have, returns the id of that boot once its Node has reported it, and knows what it
	// had before. Nil means that machines are imagined.
	Boot func(ctx context.Context, before, next *Machine) (bootID string, err error)
	// Machines are all that there are, by name.
	Machines map[string]*Machine
	// Order has the names of machines that were rebooted or replaced, in their order. MostDown is how many of one pool were down or
	// replaced at once.
	Order    []string
	MostDown int
}

// owner is that of the claims.
const owner = "provider"

// Connect returns a provider without machines for the NodePools of a namespace, with the kubeconfigs of both clusters.
func Connect(home, hosted, pools string) (*Provider, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1beta1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	p := &Provider{Pools: pools}
	for kubeconfig, to := range map[string]*client.Client{home: &p.Home, hosted: &p.Hosted} {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return nil, err
		}
		if *to, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Join makes a machine for a pool and a Node of it. It boots with what the pool's nodes are to have, if there is anything yet. A real
// machine has its Node already.
func (p *Provider) Join(ctx context.Context, name, pool string) error {
	nodePool := &v1beta1.NodePool{}
	if err := p.Home.Get(ctx, types.NamespacedName{Namespace: p.Pools, Name: pool}, nodePool); err != nil {
		return err
	}
	m := &Machine{Name: name, Pool: pool, target: nodePool.Annotations[v1beta1.TargetConfigAnnotation]}
	if err := p.boot(ctx, nodePool, m); err != nil {
		return err
	}
	m.Boots = 0
	if p.Machines == nil {
		p.Machines = map[string]*Machine{}
	}
	p.Machines[name] = m
	if p.Boot == nil {
		if err := p.Hosted.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	return errors.Join(p.tell(ctx, m), p.record(ctx, nodePool))
}

// boot boots a machine with its target.
func (p *Provider) boot(ctx context.Context, pool *v1beta1.NodePool, m *Machine) error {
	next := Machine{Name: m.Name, Pool: m.Pool, Config: m.target, BootID: string(uuid.NewUUID()), Boots: m.Boots + 1}
	if m.target != "" {
		secret := &corev1.Secret{}
		key := types.NamespacedName{Namespace: v1beta1.ControlPlaneNamespace(pool.Namespace, pool.Spec.ClusterName), Name: v1beta1.ConfigSecretName(pool.Name, m.target)}
		if err := p.Home.Get(ctx, key, secret); err != nil {
			return err
		}
		config, report, err := ignition.Parse(secret.Data[v1beta1.ConfigSecretKey])
		if err != nil {
			return fmt.Errorf("the Secret %s: %w: %s", key, err, report.String())
		}
		next.Files, next.Modes = map[string]string{}, map[string]int{}
		for _, argument := range config.KernelArguments.ShouldExist {
			next.Arguments = append(next.Arguments, strings.Fields(string(argument))...)
		}
		for _, file := range config.Storage.Files {
			content, err := dataurl.DecodeString(*file.Contents.Source)
			if err != nil {
				return fmt.Errorf("the Secret %s: %s: %w", key, file.Path, err)
			}
			next.Files[file.Path], next.Modes[file.Path] = string(content.Data), ptr.Deref(file.Mode, 0o644)
		}
		for _, unit := range config.Systemd.Units {
			path := "/etc/systemd/system/" + unit.Name
			next.Files[path], next.Modes[path] = ptr.Deref(unit.Contents, ""), 0o644
			if ptr.Deref(unit.Enabled, false) {
				next.Units = append(next.Units, unit.Name)
			}
		}
	}
	if p.Boot != nil {
		id, err := p.Boot(ctx, m, &next)
		if err != nil {
			return err
		}
		next.BootID = id
	}
	*m = next
	return nil
}

// Step does what is due, and reports whether anything was: machines that are down come up, and others go down as far as the pool allows
// it. The Node of a machine is claimed before that, and not while somebody else has it.
func (p *Provider) Step(ctx context.Context) (done bool, err error) {
	var pools v1beta1.NodePoolList
	if err := p.Home.List(ctx, &pools, client.InNamespace(p.Pools)); err != nil {
		return false, err
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		of := p.of(pool.Name)
		down := 0
		for _, m := range of {
			if m.target == "" {
				continue
			}
			if err := p.boot(ctx, pool, m); err != nil {
				return done, err
			}
			done = true
			p.Order = append(p.Order, m.Name)
			if err := errors.Join(p.tell(ctx, m), p.claim(ctx, m.Name, nodegroup.Claim{})); err != nil {
				return done, err
			}
		}
		target := pool.Annotations[v1beta1.TargetConfigAnnotation]
		if pool.Spec.Management.UpgradeType == v1beta1.UpgradeTypeReplace {
			replaced, err := p.replace(ctx, pool, of, target)
			if done = done || replaced; err != nil {
				return done, err
			}
			of = nil
		}
		for _, m := range of {
			if target == "" || m.Config == target || down >= pool.Spec.Management.AtOnce(len(of)) {
				continue
			}
			err := p.claim(ctx, m.Name, nodegroup.Claim{Owner: owner, Operation: "reboot", Since: time.Now()})
			var held *nodegroup.HeldError
			if errors.As(err, &held) {
				continue
			}
			if err != nil {
				return done, err
			}
			m.target, done = target, true
			down++
		}
		p.MostDown = max(p.MostDown, down)
		if err := p.record(ctx, pool); err != nil {
			return done, err
		}
	}
	return done, nil
}

// replace puts new machines in the place of those of a pool that have not booted the target, as many at once as the pool allows.
func (p *Provider) replace(ctx context.Context, pool *v1beta1.NodePool, of []*Machine, target string) (done bool, err error) {
	at := 0
	for _, m := range of {
		if target == "" || m.Config == target || at >= pool.Spec.Management.AtOnce(len(of)) {
			continue
		}
		err := p.claim(ctx, m.Name, nodegroup.Claim{Owner: owner, Operation: "replace", Since: time.Now()})
		var held *nodegroup.HeldError
		if errors.As(err, &held) {
			continue
		}
		if err != nil {
			return done, err
		}
		if err := p.Join(ctx, m.Name+"-"+target, pool.Name); err != nil {
			return done, err
		}
		delete(p.Machines, m.Name)
		p.Order = append(p.Order, m.Name)
		done = true
		at++
		if err := p.Hosted.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}); err != nil {
			return done, err
		}
	}
	p.MostDown = max(p.MostDown, at)
	return done, nil
}

// of returns the machines of a pool in the order of their names.
func (p *Provider) of(pool string) (machines []*Machine) {
	for _, name := range slices.Sorted(maps.Keys(p.Machines)) {
		if p.Machines[name].Pool == pool {
			machines = append(machines, p.Machines[name])
		}
	}
	return machines
}

// claim puts a claim on a machine's Node, or removes it.
func (p *Provider) claim(ctx context.Context, name string, claim nodegroup.Claim) error {
	return nodeclient.Client{Reader: p.Hosted, Writer: p.Hosted}.UpdateNode(ctx, name, func(node *corev1.Node) error {
		held, err := nodegroup.ClaimOf(node)
		if err != nil {
			return err
		}
		if claim != (nodegroup.Claim{}) {
			if err := claim.Check(node.Name, held, node.Spec.Unschedulable, true); err != nil {
				return err
			}
		}
		nodegroup.Put(node, claim)
		return nil
	})
}

// tell says on a machine's Node what it has booted.
func (p *Provider) tell(ctx context.Context, m *Machine) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}
	if err := p.Hosted.Patch(ctx, node, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1beta1.BootedAnnotation, m.Config))); err != nil {
		return err
	}
	if p.Boot != nil {
		return nil // its kubelet says the rest
	}
	return p.Hosted.Status().Patch(ctx, node, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"nodeInfo":{"bootID":%q}}}`, m.BootID)))
}

// record records the nodes of a pool, and what they have booted.
func (p *Provider) record(ctx context.Context, pool *v1beta1.NodePool) error {
	booted, data := map[string]string{}, map[string]string{}
	for _, m := range p.of(pool.Name) {
		booted[m.Name], data[m.Name] = m.Config, ""
	}
	text, err := json.Marshal(booted)
	if err != nil {
		return err
	}
	record := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1beta1.ControlPlaneNamespace(pool.Namespace, pool.Spec.ClusterName), Name: "nodes-" + pool.Name,
			Labels:      map[string]string{v1beta1.NodesLabel: "", v1beta1.PoolLabel: pool.Name},
			Annotations: map[string]string{v1beta1.BootedAnnotation: string(text)},
		},
		Data: data,
	}
	if err := p.Home.Update(ctx, record); !apierrors.IsNotFound(err) {
		return err
	}
	return p.Home.Create(ctx, record)
}
