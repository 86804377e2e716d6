package v1alpha1

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Defaults for fields that an object leaves out. Except for maxSurge and maxUnavailable, the defaults are not written
// into objects, so that an object shows only the user's settings. A duration of zero means that the timeout ends at
// once.
const (
	// DefaultCreationTimeout is how long a machine may take until its node has joined. Source: default of MCM's flag
	// --machine-creation-timeout.
	DefaultCreationTimeout = 20 * time.Minute
	// DefaultHealthTimeout is how long a node may be unhealthy. Source: default of MCM's flag --machine-health-timeout.
	DefaultHealthTimeout = 10 * time.Minute
	// DefaultDrainTimeout is how long a drain may take before it is forced. Source: default of MCM's flag
	// --machine-drain-timeout.
	DefaultDrainTimeout = 2 * time.Hour
	// DefaultInPlaceUpdateTimeout is how long an in-place update may take. Source: default of MCM's flag
	// --machine-inplace-update-timeout.
	DefaultInPlaceUpdateTimeout = 20 * time.Minute
	// DefaultPreserveTimeout is how long a preserved machine is kept. Source: default of MCM's flag
	// --machine-preserve-timeout.
	DefaultPreserveTimeout = 96 * time.Hour
	// DefaultNodeConditions are the conditions that make a node unhealthy when True. Source: default of MCM's flag
	// --node-conditions.
	DefaultNodeConditions = "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable"

	// DefaultMaxReplacements is how many machines of one failure domain are replaced at a time because they failed.
	// Source: MCM's constant maxReplacements.
	DefaultMaxReplacements = 1

	// DefaultRemediationBackoff is the first back-off between replacements when the new machines also fail before they
	// join. The back-off doubles with each further failed generation of machines, up to DefaultRemediationMaxBackoff.
	// Source: Cluster API's KubeadmControlPlane also doubles its back-off. A cloud takes about a minute to report
	// missing capacity, and a person about an hour to react.
	DefaultRemediationBackoff    = time.Minute
	DefaultRemediationMaxBackoff = time.Hour

	// DefaultMaxSurge is how many machines an update may add. The API server also writes this default into objects.
	// Source: MCM's API.
	DefaultMaxSurge = 1
	// DefaultMaxUnavailable is how many machines an update may remove. The API server also writes this default into
	// objects. Source: MCM's API.
	DefaultMaxUnavailable = 0
)

// EffectiveCreationTimeout returns how long the machine may take until its node has joined. The machine's annotation
// effective-creation-timeout overrides the spec, and the spec overrides the default. An annotation that is not a
// duration, or is negative, is ignored.
func (s *MachineSpec) EffectiveCreationTimeout(annotations map[string]string) time.Duration {
	if d, err := time.ParseDuration(annotations[AnnotationEffectiveCreationTimeout]); err == nil && d >= 0 {
		return d
	}
	return durationOr(s.configurationOrEmpty().MachineCreationTimeout, DefaultCreationTimeout)
}

// EffectiveHealthTimeout returns how long the node may be unhealthy before the machine is Failed. Callers must check
// HealthTimeoutDisabled first.
func (s *MachineSpec) EffectiveHealthTimeout() time.Duration {
	return durationOr(s.configurationOrEmpty().MachineHealthTimeout, DefaultHealthTimeout)
}

// HealthTimeoutDisabled reports whether an unhealthy machine never becomes Failed because of a timeout.
func (s *MachineSpec) HealthTimeoutDisabled() bool {
	disabled := s.configurationOrEmpty().DisableHealthTimeout
	return disabled != nil && *disabled
}

// EffectiveDrainTimeout returns how long a drain may take before it is forced.
func (s *MachineSpec) EffectiveDrainTimeout() time.Duration {
	return durationOr(s.configurationOrEmpty().MachineDrainTimeout, DefaultDrainTimeout)
}

// EffectiveInPlaceUpdateTimeout returns how long an in-place update may take before it counts as failed.
func (s *MachineSpec) EffectiveInPlaceUpdateTimeout() time.Duration {
	return durationOr(s.configurationOrEmpty().MachineInPlaceUpdateTimeout, DefaultInPlaceUpdateTimeout)
}

// EffectivePreserveTimeout returns how long a preserved machine is kept.
func (s *MachineSpec) EffectivePreserveTimeout() time.Duration {
	return durationOr(s.configurationOrEmpty().MachinePreserveTimeout, DefaultPreserveTimeout)
}

// EvictRetries returns how many times the eviction of a pod may be refused before the pod is deleted; nil means no
// limit, and zero means at once.
func (s *MachineSpec) EvictRetries() *int32 { return s.configurationOrEmpty().MaxEvictRetries }

// EffectiveNodeConditions returns the types of node conditions that make the machine unhealthy when True. As in MCM,
// spaces are not removed: " DiskPressure" matches no type of a condition. An empty text in the spec means no types.
func (s *MachineSpec) EffectiveNodeConditions() []corev1.NodeConditionType {
	list := DefaultNodeConditions
	if conditions := s.configurationOrEmpty().NodeConditions; conditions != nil {
		list = *conditions
	}
	var types []corev1.NodeConditionType
	for name := range strings.SplitSeq(list, ",") {
		if name != "" {
			types = append(types, corev1.NodeConditionType(name))
		}
	}
	return types
}

// PolicySpec returns the spec of a policy. For a nil policy, PolicySpec returns an empty spec, which means the default
// of every field.
func (p *RolloutPolicy) PolicySpec() *RolloutPolicySpec {
	if p == nil {
		return &RolloutPolicySpec{}
	}
	return &p.Spec
}

// EffectiveMaxReplacements returns the replacement budget of one failure domain: a number, or a percentage of its
// machines.
func (s *RolloutPolicySpec) EffectiveMaxReplacements() intstr.IntOrString {
	if s.MaxReplacements == nil {
		return intstr.FromInt32(DefaultMaxReplacements)
	}
	return *s.MaxReplacements
}

// EffectiveType returns the type of the strategy; RollingUpdate if the type is left out.
func (s *MachineDeploymentStrategy) EffectiveType() MachineDeploymentStrategyType {
	if s.Type == "" {
		return RollingUpdateMachineDeploymentStrategyType
	}
	return s.Type
}

// EffectiveRollingUpdate returns the bounds of a rolling update. A bound that is left out is 1 for maxSurge and 0 for
// maxUnavailable. If both bounds are zero, callers must count maxUnavailable as 1.
func (s *MachineDeploymentStrategy) EffectiveRollingUpdate() (maxSurge, maxUnavailable intstr.IntOrString) {
	if s.RollingUpdate == nil {
		return (&UpdateConfiguration{}).effectiveBounds()
	}
	return s.RollingUpdate.effectiveBounds()
}

// EffectiveInPlaceUpdate returns the bounds of an in-place update, with the same defaults as EffectiveRollingUpdate.
func (s *MachineDeploymentStrategy) EffectiveInPlaceUpdate() (maxSurge, maxUnavailable intstr.IntOrString) {
	if s.InPlaceUpdate == nil {
		return (&UpdateConfiguration{}).effectiveBounds()
	}
	return s.InPlaceUpdate.effectiveBounds()
}

func (c *UpdateConfiguration) effectiveBounds() (maxSurge, maxUnavailable intstr.IntOrString) {
	maxSurge, maxUnavailable = intstr.FromInt32(DefaultMaxSurge), intstr.FromInt32(DefaultMaxUnavailable)
	if c.MaxSurge != nil {
		maxSurge = *c.MaxSurge
	}
	if c.MaxUnavailable != nil {
		maxUnavailable = *c.MaxUnavailable
	}
	return maxSurge, maxUnavailable
}

// configurationOrEmpty returns the machine configuration, or an empty configuration if the pointer is nil. Reading a
// field of the embedded nil pointer would panic.
func (s *MachineSpec) configurationOrEmpty() MachineConfiguration {
	if s.MachineConfiguration == nil {
		return MachineConfiguration{}
	}
	return *s.MachineConfiguration
}

func durationOr(d *metav1.Duration, fallback time.Duration) time.Duration {
	if d == nil {
		return fallback
	}
	return d.Duration
}

// ProviderName returns the name of the class's provider in lower case, or "" if the class has no provider. Manifests
// for MCM contain upper-case names such as AWS.
func (c *MachineClass) ProviderName() string { return strings.ToLower(c.Provider) }
