/*
Copyright 2025 The Kubernetes Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines,verbs=get;list;patch,roleName=cpupolicy-webhooks
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances,verbs=get;list,roleName=cpupolicy-webhooks

var vmResource = schema.GroupResource{Group: virtv1.SchemeGroupVersion.Group, Resource: "virtualmachines"}

func vmAccess(verb, namespace, name string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{Verb: verb, Group: vmResource.Group, Version: "v1", Resource: vmResource.Resource, Namespace: namespace, Name: name}
}

// vmRow is a virtual machine with its checkbox.
type vmRow struct {
	Namespace, Name, Status string
	Pinned                  bool
	// Why says why the checkbox cannot be changed now.
	Why string
}

// vmList is what the page of virtual machines has.
type vmList struct {
	// Namespace is empty for all of them.
	Namespace string
	// Missing means that the cluster has no KubeVirt.
	Missing bool
	Rows    []vmRow
}

func (s *server) vms(w http.ResponseWriter, r *http.Request, current session) error {
	namespace := r.URL.Query().Get("namespace")
	p := open(current, "Virtual machines", "virtual-machines")
	body := vmList{Namespace: namespace}
	show := func(code int) error {
		p.Body = body
		render(w, r, code, "virtual-machines", p)
		return nil
	}
	if err := checkNamespace(namespace); namespace != "" && err != nil {
		p.Alerts = append(p.Alerts, alert{"There is no such namespace", err.Error()})
		return show(http.StatusBadRequest)
	}
	if err := s.may(r.Context(), current.user, vmAccess("list", namespace, "")); apierrors.IsForbidden(err) {
		title := "Choose a namespace: you may not see the virtual machines of all of them"
		if namespace != "" {
			title = fmt.Sprintf("You may not see the virtual machines of the namespace %s", namespace)
		}
		p.Alerts = append(p.Alerts, alert{title, err.Error()})
		return show(http.StatusForbidden)
	} else if err != nil {
		return err
	}
	var list virtv1.VirtualMachineList
	err := s.client.List(r.Context(), &list, client.InNamespace(namespace), client.Limit(s.pageSize), client.Continue(r.URL.Query().Get("from")))
	if meta.IsNoMatchError(err) {
		body.Missing = true
		return show(http.StatusOK)
	}
	if err != nil {
		return err
	}
	running, err := s.running(r.Context(), namespace)
	if err != nil {
		return err
	}
	may := s.mayEach(r.Context(), current.user, vmAccess("update", "", ""))
	for i := range list.Items {
		vm := &list.Items[i]
		allowed := may(vm.Namespace, vm.Name)
		if allowed != nil && !apierrors.IsForbidden(allowed) {
			return allowed
		}
		body.Rows = append(body.Rows, vmRow{
			Namespace: vm.Namespace,
			Name:      vm.Name,
			Status:    string(vm.Status.PrintableStatus),
			Pinned:    pinned(vm),
			Why:       whyNot(vm, running[client.ObjectKeyFromObject(vm)], allowed),
		})
	}
	p.Next = next(r, list.Continue)
	return show(http.StatusOK)
}

func checkNamespace(name string) error {
	if problems := validation.IsDNS1123Label(name); problems != nil {
		return fmt.Errorf("namespace %q: %s", name, problems[0])
	}
	return nil
}

// running returns which VMs have a VirtualMachineInstance, which has their name.
func (s *server) running(ctx context.Context, namespace string) (map[client.ObjectKey]bool, error) {
	running := map[client.ObjectKey]bool{}
	for from := ""; ; {
		var list virtv1.VirtualMachineInstanceList
		if err := s.client.List(ctx, &list, client.InNamespace(namespace), client.Limit(s.pageSize), client.Continue(from)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			running[client.ObjectKeyFromObject(&list.Items[i])] = true
		}
		if from = list.Continue; from == "" {
			return running, nil
		}
	}
}

func pinned(vm *virtv1.VirtualMachine) bool {
	return vm.Spec.Template != nil && vm.Spec.Template.Spec.Domain.CPU != nil && vm.Spec.Template.Spec.Domain.CPU.DedicatedCPUPlacement
}

func whyNot(vm *virtv1.VirtualMachine, runs bool, may error) string {
	switch {
	case may != nil:
		return "You may not do this: " + may.Error()
	case vm.DeletionTimestamp != nil:
		return "It is being deleted."
	case vm.Spec.Template == nil:
		return "It has no spec.template."
	case runs:
		return "It has a VirtualMachineInstance; stop it first."
	}
	return ""
}

// pinVM writes dedicatedCpuPlacement. What follows from it for the rest of the VM is the
// webhooks' concern, and that it may have been started meanwhile, too.
func (s *server) pinVM(w http.ResponseWriter, r *http.Request, current session) error {
	key := client.ObjectKey{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	pin := r.PostFormValue("pinned") == "true"
	query := ""
	if namespace := r.PostFormValue("namespace"); namespace != "" {
		query = "?" + url.Values{"namespace": {namespace}}.Encode()
	}
	s.done(w, r, current, fmt.Sprintf("The cpu-pinning of %s was not changed", key), "/virtual-machines"+query, s.pin(r.Context(), current, key, pin))
	return nil
}

func (s *server) pin(ctx context.Context, current session, key client.ObjectKey, pin bool) error {
	if checkNamespace(key.Namespace) != nil || validation.IsDNS1123Subdomain(key.Name) != nil {
		return apierrors.NewNotFound(vmResource, key.String())
	}
	if err := s.may(ctx, current.user, vmAccess("update", key.Namespace, key.Name)); err != nil {
		return err
	}
	var vm virtv1.VirtualMachine
	if err := s.client.Get(ctx, key, &vm); err != nil {
		return err
	}
	if pinned(&vm) == pin {
		return nil
	}
	err := s.client.Get(ctx, key, &virtv1.VirtualMachineInstance{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if why := whyNot(&vm, err == nil, nil); why != "" {
		return apierrors.NewConflict(vmResource, key.String(), errors.New(why))
	}
	before := vm.DeepCopy()
	domain := &vm.Spec.Template.Spec.Domain
	if domain.CPU == nil {
		domain.CPU = &virtv1.CPU{}
	}
	domain.CPU.DedicatedCPUPlacement = pin
	return s.client.Patch(ctx, &vm, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
