// SPDX-License-Identifier: Apache-2.0

package numaresources

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// ConfigKey is the key of an exporter's configuration in its ConfigMap, and the name of the file.
const ConfigKey = "config.yaml"

// HeartbeatAnnotation of a NodeResourceTopology is when the exporter has last begun to read what stands there, by RFC 3339 in whole
// seconds, of the node's clock.
const HeartbeatAnnotation = "nodetopology.openshift.io/heartbeat"

// Heartbeat is how long an exporter writes nothing if nothing changes, by default and at most. After Stale without a write, nobody may
// rely on what stands there.
const (
	Heartbeat = 5 * time.Minute
	Stale     = 15 * time.Minute
)

// IsStale reports whether the exporter has not written for too long. Something that no exporter of ours wrote has no
// annotation, and is stale.
func IsStale(annotations map[string]string, now time.Time) bool {
	return IsOld(HeartbeatOf(annotations), now)
}

// HeartbeatOf reads the annotation. It is the zero time if there is none that can be read.
func HeartbeatOf(annotations map[string]string) time.Time {
	at, err := time.Parse(time.RFC3339, annotations[HeartbeatAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}

// IsOld is IsStale for what HeartbeatOf returned.
func IsOld(heartbeat, now time.Time) bool { return now.Sub(heartbeat) > Stale }

// RefreshMode says when an exporter writes what has changed.
type RefreshMode string

// The modes of refreshing, by the names of nodeGroups[].config.infoRefreshMode.
const (
	RefreshPeriodic          RefreshMode = "Periodic"
	RefreshEvents            RefreshMode = "Events"
	RefreshPeriodicAndEvents RefreshMode = "PeriodicAndEvents"
)

// ExporterConfiguration is what the exporters of a group are told, in their ConfigMap. It has no policy: that is the
// kubelet's to say.
type ExporterConfiguration struct {
	// RefreshMode is [RefreshPeriodic] if an exporter reads the kubelet once in a period; else it does so each second.
	RefreshMode RefreshMode `json:"infoRefreshMode,omitempty"`
	// RefreshPeriod is at least a second.
	RefreshPeriod v1.Duration `json:"infoRefreshPeriod,omitzero"`
	// HeartbeatPeriod is how long an exporter writes nothing if nothing changes: from one second to [Heartbeat].
	HeartbeatPeriod v1.Duration `json:"heartbeatPeriod,omitzero"`
	// Paused exporters write nothing, so that what they have written becomes stale.
	Paused      bool        `json:"paused,omitempty"`
	Fingerprint Fingerprint `json:"podsFingerprinting,omitempty"`
}

// DefaultExporterConfiguration is that of a group which says nothing.
func DefaultExporterConfiguration() ExporterConfiguration {
	return ExporterConfiguration{
		RefreshMode:     RefreshPeriodicAndEvents,
		RefreshPeriod:   v1.Duration{Duration: 10 * time.Second},
		HeartbeatPeriod: v1.Duration{Duration: Heartbeat},
		Fingerprint:     FingerprintExclusive,
	}
}

// LookPeriod is how often an exporter reads the kubelet.
func (c ExporterConfiguration) LookPeriod() time.Duration {
	if c.RefreshMode == RefreshPeriodic {
		return c.RefreshPeriod.Duration
	}
	return time.Second
}

// maxExporterConfiguration is the largest configuration in bytes.
const maxExporterConfiguration = 64 << 10

// ParseExporterConfiguration reads an exporter's configuration. What is missing has its default. Unknown fields and values
// are errors that name them.
func ParseExporterConfiguration(data []byte) (ExporterConfiguration, error) {
	c := DefaultExporterConfiguration()
	if len(data) > maxExporterConfiguration {
		return c, fmt.Errorf("it has %d bytes, at most %d are read", len(data), maxExporterConfiguration)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return c, errors.New("it is empty")
	}
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return c, err
	}
	var errs field.ErrorList
	switch c.RefreshMode {
	case RefreshPeriodic, RefreshEvents, RefreshPeriodicAndEvents:
	default:
		errs = append(errs, field.NotSupported(field.NewPath("infoRefreshMode"), c.RefreshMode, []RefreshMode{RefreshPeriodic, RefreshEvents, RefreshPeriodicAndEvents}))
	}
	if c.RefreshPeriod.Duration < time.Second {
		errs = append(errs, field.Invalid(field.NewPath("infoRefreshPeriod"), c.RefreshPeriod.Duration.String(), "must be at least one second"))
	}
	if period := c.HeartbeatPeriod.Duration; period < time.Second || period > Heartbeat {
		errs = append(errs, field.Invalid(field.NewPath("heartbeatPeriod"), period.String(), fmt.Sprintf("must be between one second and %s", Heartbeat)))
	}
	switch c.Fingerprint {
	case FingerprintNone, FingerprintAll, FingerprintExclusive:
	default:
		errs = append(errs, field.NotSupported(field.NewPath("podsFingerprinting"), c.Fingerprint, []Fingerprint{FingerprintNone, FingerprintAll, FingerprintExclusive}))
	}
	return c, errs.ToAggregate()
}

// String returns the configuration as the file has it.
func (c ExporterConfiguration) String() string {
	text, err := yaml.Marshal(c)
	if err != nil {
		panic(err) // it has plain values alone
	}
	return string(text)
}

// Name is the companion's. OwnerLabel and FieldOwner are those of package companion, which what runs on a node does not
// import.
const (
	Name       = "numaresources"
	OwnerLabel = "workload.openshift.io/companion"
	FieldOwner = Name + ".workload.openshift.io"
)
