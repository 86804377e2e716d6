package v1alpha1

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestEffectiveValuesOfAnEmptySpec(t *testing.T) {
	for name, spec := range map[string]MachineSpec{
		"no configuration":    {},
		"empty configuration": {MachineConfiguration: &MachineConfiguration{}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, 20*time.Minute, spec.EffectiveCreationTimeout(nil))
			assert.Equal(t, 10*time.Minute, spec.EffectiveHealthTimeout())
			assert.Equal(t, 2*time.Hour, spec.EffectiveDrainTimeout())
			assert.Equal(t, 20*time.Minute, spec.EffectiveInPlaceUpdateTimeout())
			assert.Equal(t, 96*time.Hour, spec.EffectivePreserveTimeout())
			assert.Nil(t, spec.EvictRetries(), "no hidden limit")
			assert.False(t, spec.HealthTimeoutDisabled())
			assert.Equal(t, []corev1.NodeConditionType{
				"KernelDeadlock", "ReadonlyFilesystem", "DiskPressure", "NetworkUnavailable",
			}, spec.EffectiveNodeConditions())
		})
	}
}

func TestEffectiveValuesOfZeroFields(t *testing.T) {
	spec := MachineSpec{MachineConfiguration: &MachineConfiguration{
		MachineCreationTimeout:      &metav1.Duration{},
		MachineHealthTimeout:        &metav1.Duration{},
		MachineDrainTimeout:         &metav1.Duration{},
		MachineInPlaceUpdateTimeout: &metav1.Duration{},
		MachinePreserveTimeout:      &metav1.Duration{},
		MaxEvictRetries:             new(int32),
		DisableHealthTimeout:        new(bool),
		NodeConditions:              new(string),
	}}
	assert.Zero(t, spec.EffectiveCreationTimeout(nil))
	assert.Zero(t, spec.EffectiveHealthTimeout())
	assert.Zero(t, spec.EffectiveDrainTimeout())
	assert.Zero(t, spec.EffectiveInPlaceUpdateTimeout())
	assert.Zero(t, spec.EffectivePreserveTimeout())
	assert.Zero(t, *spec.EvictRetries())
	assert.False(t, spec.HealthTimeoutDisabled())
	assert.Empty(t, spec.EffectiveNodeConditions())
}

func TestEffectiveCreationTimeout(t *testing.T) {
	said := MachineSpec{MachineConfiguration: &MachineConfiguration{
		MachineCreationTimeout: &metav1.Duration{Duration: 5 * time.Minute},
	}}
	for name, tc := range map[string]struct {
		spec       MachineSpec
		annotation string
		want       time.Duration
	}{
		"the annotation beats the spec":    {said, "7m", 7 * time.Minute},
		"the annotation beats the default": {MachineSpec{}, "7m", 7 * time.Minute},
		"zero is a value":                  {said, "0s", 0},
		"no duration is ignored":           {said, "soon", 5 * time.Minute},
		"a negative one is ignored":        {said, "-7m", 5 * time.Minute},
		"an empty one is ignored":          {MachineSpec{}, "", 20 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.spec.EffectiveCreationTimeout(map[string]string{AnnotationEffectiveCreationTimeout: tc.annotation})
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestEffectiveNodeConditionsAreNotTrimmed(t *testing.T) {
	list := "A, B,,C"
	spec := MachineSpec{MachineConfiguration: &MachineConfiguration{NodeConditions: &list}}
	assert.Equal(t, []corev1.NodeConditionType{"A", " B", "C"}, spec.EffectiveNodeConditions())
}

func TestEffectiveStrategy(t *testing.T) {
	two, zero, percent := intstr.FromInt32(2), intstr.FromInt32(0), intstr.FromString("25%")
	config := UpdateConfiguration{MaxSurge: &percent, MaxUnavailable: &two}
	for name, tc := range map[string]struct {
		strategy MachineDeploymentStrategy
		wantType MachineDeploymentStrategyType
		// maxSurge and maxUnavailable of the field that belongs to the strategy's type
		wantSurge, wantUnavailable intstr.IntOrString
	}{
		"nothing said": {
			MachineDeploymentStrategy{},
			RollingUpdateMachineDeploymentStrategyType, intstr.FromInt32(1), zero,
		},
		"block without values": {
			MachineDeploymentStrategy{RollingUpdate: &RollingUpdateMachineDeployment{}},
			RollingUpdateMachineDeploymentStrategyType, intstr.FromInt32(1), zero,
		},
		"both zero stay zero": {
			MachineDeploymentStrategy{RollingUpdate: &RollingUpdateMachineDeployment{
				UpdateConfiguration{MaxSurge: &zero, MaxUnavailable: &zero},
			}},
			RollingUpdateMachineDeploymentStrategyType, zero, zero,
		},
		"rolling": {
			MachineDeploymentStrategy{RollingUpdate: &RollingUpdateMachineDeployment{config}},
			RollingUpdateMachineDeploymentStrategyType, percent, two,
		},
		"in place": {
			MachineDeploymentStrategy{
				Type:          InPlaceUpdateMachineDeploymentStrategyType,
				InPlaceUpdate: &InPlaceUpdateMachineDeployment{UpdateConfiguration: config},
			},
			InPlaceUpdateMachineDeploymentStrategyType, percent, two,
		},
		"in place without block": {
			MachineDeploymentStrategy{Type: InPlaceUpdateMachineDeploymentStrategyType},
			InPlaceUpdateMachineDeploymentStrategyType, intstr.FromInt32(1), zero,
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.wantType, tc.strategy.EffectiveType())
			surge, unavailable := tc.strategy.EffectiveRollingUpdate()
			if tc.wantType == InPlaceUpdateMachineDeploymentStrategyType {
				surge, unavailable = tc.strategy.EffectiveInPlaceUpdate()
			}
			assert.Equal(t, tc.wantSurge, surge)
			assert.Equal(t, tc.wantUnavailable, unavailable)
		})
	}
}

func TestTheNameOfAProviderIsInLowerCase(t *testing.T) {
	assert.Equal(t, "openstack", (&MachineClass{Provider: "OpenStack"}).ProviderName())
	assert.Empty(t, (&MachineClass{}).ProviderName())
}
