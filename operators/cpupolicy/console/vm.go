// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// vmResource is KubeVirt's.
var vmResource = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines"}

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

// in returns the virtual machines of a namespace; empty is all of them.
func (s *server) in(namespace string) dynamic.ResourceInterface {
	return s.dynamic.Resource(vmResource).Namespace(namespace)
}

func (s *server) vms(w http.ResponseWriter, r *http.Request) error {
	body := vmList{Namespace: r.URL.Query().Get("namespace")}
	p := s.open("Virtual machines", "virtual-machines")
	code := http.StatusOK
	list, err := s.in(body.Namespace).List(r.Context(), metav1.ListOptions{Limit: s.pageSize, Continue: r.URL.Query().Get("from")})
	switch {
	case apierrors.IsNotFound(err):
		body.Missing = true
	case err != nil:
		code = codeOf(err)
		title := "The virtual machines of all namespaces cannot be listed; choose one"
		if body.Namespace != "" {
			title = fmt.Sprintf("The virtual machines of the namespace %s cannot be listed", body.Namespace)
		}
		p.Alerts = append(p.Alerts, alert{title, err.Error()})
	default:
		p.Next = next(r, list.GetContinue())
		for i := range list.Items {
			vm := &list.Items[i]
			status, _, _ := unstructured.NestedString(vm.Object, "status", "printableStatus")
			body.Rows = append(body.Rows, vmRow{vm.GetNamespace(), vm.GetName(), status, pinned(vm), whyNot(vm)})
		}
	}
	p.Body = body
	render(w, code, "virtual-machines", p)
	return nil
}

func pinned(vm *unstructured.Unstructured) bool {
	pinned, _, _ := unstructured.NestedBool(vm.Object, "spec", "template", "spec", "domain", "cpu", "dedicatedCpuPlacement")
	return pinned
}

// whyNot says why a virtual machine's CPUs cannot be changed now; empty if they can. That it may have been
// started meanwhile is the webhook's concern.
func whyNot(vm *unstructured.Unstructured) string {
	_, has, err := unstructured.NestedMap(vm.Object, "spec", "template")
	// KubeVirt says by this whether there is a VirtualMachineInstance (VirtualMachineStatus of kubevirt.io/api).
	created, _, _ := unstructured.NestedBool(vm.Object, "status", "created")
	switch {
	case vm.GetDeletionTimestamp() != nil:
		return "It is being deleted."
	case !has || err != nil:
		return "It has no spec.template."
	case created:
		return "It has a VirtualMachineInstance; stop it first."
	}
	return ""
}

// pinVM writes dedicatedCpuPlacement. What follows from it for the rest of the VM is the webhooks' concern.
func (s *server) pinVM(w http.ResponseWriter, r *http.Request) error {
	namespace, name := r.PostFormValue("namespace"), r.PostFormValue("name")
	back := "virtual-machines"
	if of := r.PostFormValue("of"); of != "" {
		back += "?" + url.Values{"namespace": {of}}.Encode()
	}
	err := s.pin(r.Context(), namespace, name, r.PostFormValue("pinned") == "true")
	s.done(w, r, fmt.Sprintf("The cpu-pinning of %s/%s was not changed", namespace, name), back, err)
	return nil
}

func (s *server) pin(ctx context.Context, namespace, name string, pin bool) error {
	vm, err := s.in(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || pinned(vm) == pin {
		return err
	}
	if why := whyNot(vm); why != "" {
		return errors.New(why)
	}
	type object = map[string]any
	patch, err := json.Marshal(object{
		"metadata": object{"resourceVersion": vm.GetResourceVersion()},
		"spec":     object{"template": object{"spec": object{"domain": object{"cpu": object{"dedicatedCpuPlacement": pin}}}}},
	})
	if err == nil {
		_, err = s.in(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-partition"})
	}
	if err == nil {
		s.client.Say(ctx, corev1.ObjectReference{APIVersion: vm.GetAPIVersion(), Kind: vm.GetKind(), Namespace: namespace, Name: name, UID: vm.GetUID()},
			"CPUPinningChanged", "PinCPUs", fmt.Sprintf("has set cpu-pinning to %t", pin))
	}
	return err
}
