// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"workload.openshift.io/operators/api/untrusted"
	"workload.openshift.io/operators/cpupolicy"
)

// decodeVMs returns a VirtualMachine as it was and as it is to be. before is nil when it is
// created.
func decodeVMs(decoder admission.Decoder, request admission.Request) (before, after *virtv1.VirtualMachine, err error) {
	for _, raw := range [][]byte{request.OldObject.Raw, request.Object.Raw} {
		if err := untrusted.CheckNumbers(raw); err != nil {
			return nil, nil, err
		}
	}
	after = &virtv1.VirtualMachine{}
	if err := decoder.Decode(request, after); err != nil {
		return nil, nil, err
	}
	if len(request.OldObject.Raw) > 0 {
		before = &virtv1.VirtualMachine{}
		err = decoder.DecodeRaw(request.OldObject, before)
	}
	return before, after, err
}

// vmMutator makes VMs fit for dedicated CPUs.
type vmMutator struct{ decoder admission.Decoder }

// Handle implements admission.Handler.
func (m *vmMutator) Handle(_ context.Context, request admission.Request) admission.Response {
	before, after, err := decodeVMs(m.decoder, request)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	written := after.DeepCopy()
	if !cpupolicy.MutateVirtualMachine(before, after) {
		return admission.Allowed("")
	}
	mutated, err := transferChanges(request.Object.Raw, written, after)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, mutated)
}

// transferChanges returns an object as somebody wrote it, with what has changed from before to after.
// KubeVirt on the cluster may be newer than these types: what they do not know stays as it is.
func transferChanges(raw []byte, before, after runtime.Object) ([]byte, error) {
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	known := map[runtime.Object]map[string]any{}
	for _, typed := range []runtime.Object{before, after} {
		var err error
		if known[typed], err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
			return nil, err
		}
	}
	return json.Marshal(transferred(object, known[before], known[after]))
}

// transferred does the same with a value of JSON.
func transferred(raw, before, after any) any {
	switch after := after.(type) {
	case map[string]any:
		written, _ := raw.(map[string]any)
		old, _ := before.(map[string]any)
		result := map[string]any{}
		maps.Copy(result, written)
		for key := range old {
			if _, stays := after[key]; !stays {
				delete(result, key)
			}
		}
		for key, value := range after {
			// The types have some empty objects that nobody wrote.
			if !reflect.DeepEqual(old[key], value) {
				result[key] = transferred(result[key], old[key], value)
			}
		}
		return result
	case []any:
		written, _ := raw.([]any)
		old, _ := before.([]any)
		result := slices.Clone(after)
		for i, value := range after {
			if len(old) == len(after) {
				if result[i] = written[i]; !reflect.DeepEqual(old[i], value) {
					result[i] = transferred(written[i], old[i], value)
				}
			} else if at := slices.IndexFunc(old, func(o any) bool { return reflect.DeepEqual(o, value) }); at >= 0 {
				result[i] = written[at]
			}
		}
		return result
	}
	return after
}

// vmValidator refuses what a VM with dedicated CPUs cannot be. Of a VM that is there it decides about what the API
// has, as nodeValidator does.
type vmValidator struct {
	decoder admission.Decoder
	reader  client.Reader
}

// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines;virtualmachineinstances,verbs=get,roleName=cpupolicy-webhooks

// Handle implements admission.Handler.
func (v *vmValidator) Handle(ctx context.Context, request admission.Request) admission.Response {
	before, after, err := decodeVMs(v.decoder, request)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	runs := false
	if before != nil {
		key, uid := client.ObjectKey{Namespace: request.Namespace, Name: request.Name}, before.UID
		before = &virtv1.VirtualMachine{}
		if err := live(ctx, v.reader, key, uid, before); isGone(err) {
			return refused(http.StatusNotFound, metav1.StatusReasonNotFound, err.Error())
		} else if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		err := v.reader.Get(ctx, key, &virtv1.VirtualMachineInstance{})
		if runs = err == nil; !runs && !isNoKind(err) {
			return admission.Errored(http.StatusInternalServerError, err)
		}
	}
	if errs := cpupolicy.ValidateVirtualMachine(before, after, runs); errs != nil {
		invalid := apierrors.NewInvalid(virtv1.VirtualMachineGroupVersionKind.GroupKind(), request.Name, errs)
		return refused(invalid.ErrStatus.Code, invalid.ErrStatus.Reason, invalid.ErrStatus.Message)
	}
	return admission.Allowed("")
}
