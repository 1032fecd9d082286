// SPDX-License-Identifier: Apache-2.0

package policyclient

import (
	"cmp"
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"workload.openshift.io/operators/api/untrusted"
)

// Say leaves an Event of an object that names the user, who has done what it is about. The user writes it, so it is no proof,
// and may lack the right to. kube-apiserver's audit log has the user in any case, so an Event that cannot be written is logged alone.
func (c Client) Say(ctx context.Context, object corev1.ObjectReference, reason, action, done string) {
	review, err := c.Kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err == nil {
		namespace := cmp.Or(object.Namespace, metav1.NamespaceDefault)
		event := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: object.Name + "-"},
			EventTime:  metav1.NowMicro(), ReportingController: fieldManager, ReportingInstance: fieldManager,
			Regarding: object, Type: corev1.EventTypeNormal, Reason: reason, Action: action,
			Note: untrusted.Note(fmt.Sprintf("User %q %s", review.Status.UserInfo.Username, done)),
		}
		_, err = c.Kube.EventsV1().Events(namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: fieldManager})
	}
	level := 0
	if apierrors.IsForbidden(err) {
		level = 2
	}
	if err != nil {
		klog.FromContext(ctx).V(level).Info("No Event names the user", "object", object.Name, "reason", err.Error())
	}
}
