// SPDX-License-Identifier: Apache-2.0

// Package companion says what a companion is to partition-controller: a name, what it needs, and how
// its controllers and webhooks are added to a manager. It holds what is the same for all of them.
//
// It knows no companion.
package companion

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	configv1alpha1 "workload.openshift.io/operators/api/config/v1alpha1"
	"workload.openshift.io/operators/foreign"
)

// Companion is one of the operators of this module.
type Companion interface {
	// Name is what --controller calls it.
	Name() string
	// Settings returns where the companion keeps its settings; nil if it has none. The configuration's are decoded
	// into that, and are there before anything below is called. It is a pointer, and always the same.
	Settings() Settings
	// Needs says what it must have before it is added.
	Needs(*configv1alpha1.ControllerConfiguration) Needs
	// AddToManager adds its controllers and webhooks to the manager at home. The clients of both clusters write as
	// FieldOwner, and its controllers start once no foreign manager is left in either.
	AddToManager(context.Context, Clusters, *configv1alpha1.ControllerConfiguration) error
}

// Settings are what an administrator chooses for one companion: the field settings of the configuration.
type Settings interface {
	// Default sets what was not chosen.
	Default()
	// Validate returns what is wrong, below the path. The rest of the configuration is valid.
	Validate(*field.Path, *configv1alpha1.ControllerConfiguration) field.ErrorList
}

// Server are settings of a companion that serves more than webhooks, metrics and probes.
type Server interface {
	// Endpoints are where.
	Endpoints() []*configv1alpha1.Endpoint
}

// Configure decodes, completes and checks a companion's settings, whatever they were before. Errors name the field and the value.
func Configure(c Companion, config *configv1alpha1.ControllerConfiguration) error {
	settings := c.Settings()
	if settings == nil {
		if config.Settings.Raw != nil {
			return fmt.Errorf("settings: %s has none", c.Name())
		}
		return nil
	}
	reflect.ValueOf(settings).Elem().SetZero()
	if err := config.DecodeSettings(settings); err != nil {
		return err
	}
	settings.Default()
	return settings.Validate(field.NewPath("settings"), config).ToAggregate()
}

// Clusters are those that a companion works in.
type Clusters struct {
	// Home has the companion's Lease, its certificate and its Events, and its controllers run under its manager.
	Home manager.Manager
	// Hosted is the cluster whose control plane is at home. It is nil unless the companion needs one.
	Hosted cluster.Cluster
}

// Needs is what a companion must have.
type Needs struct {
	// AddToScheme adds the kinds that it uses, besides client-go's. Nil adds none.
	AddToScheme func(*runtime.Scheme) error
	// Home is what it reads and leaves in the cluster that it runs for.
	Home Access
	// Hosted is the same for a hosted cluster; nil if it has only one cluster.
	Hosted *Access
}

// Access is how a companion uses a cluster.
type Access struct {
	// Cache has the kinds that it reads from the cache, and which objects of them. The client
	// refuses to read any other kind, so that nobody caches a cluster by accident: what is not
	// here is read with the cluster's APIReader.
	Cache map[client.Object]cache.ByObject
	// Foreign are the programs that are known to manage the same objects.
	Foreign []foreign.Manager
	// Marks are what nobody else writes to nodes.
	Marks Marks
	// Owned are the kinds of which it makes objects, all of them with OwnerLabel. What is made last comes last.
	Owned []schema.GroupVersionKind
}

// OwnerLabel is on each object that a companion makes, with the companion's name. What has it goes when the companion
// is uninstalled.
const OwnerLabel = "workload.openshift.io/companion"

// Marks are keys of annotations, labels and taints. What a companion writes under other keys, such as
// labels of other projects and a cordon, is known to be its own by FieldOwner, as long as nobody has
// emptied the managed fields of the node. A taint cannot be known so.
type Marks struct {
	Annotations, Labels, Taints []string
}

// FieldOwner is in whose name a companion writes to objects. So one can tell later what it wrote,
// and remove it.
func FieldOwner(name string) string {
	return name + ".workload.openshift.io"
}
