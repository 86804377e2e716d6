//go:build integration

package capi

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// markForRemediation writes the conditions with which a MachineHealthCheck marks a machine.
func (p pool) markForRemediation(t *testing.T, name string) {
	t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	rig.Eventually(t, "machine "+name+" is marked", func() (bool, any) {
		m := p.getObject(t, machineResource, name)
		conditions, _, err := unstructured.NestedSlice(m.Object, "status", "conditions")
		require.NoError(t, err)
		for _, kind := range []string{"HealthCheckSucceeded", "OwnerRemediated"} {
			conditions = append(conditions, map[string]any{
				"type": kind, "status": "False", "reason": "Test", "message": "", "lastTransitionTime": now,
			})
		}
		require.NoError(t, unstructured.SetNestedSlice(m.Object, conditions, "status", "conditions"))
		_, err = p.resourceClient(machineResource).UpdateStatus(t.Context(), m, metav1.UpdateOptions{})
		return err == nil, err
	})
}

// clockSkew is longer than maxClockSkew in decide/scale, the tolerated difference between the clocks of Temporal and the
// API server. A machine that is older than clockSkew when it fails belongs to one generation only.
const clockSkew = 11 * time.Second

// awaitOwnMachine returns the only machine of the set, which is none of the former machines, has conditions, and is
// older than clockSkew.
func (p pool) awaitOwnMachine(t *testing.T, former ...string) (name string) {
	t.Helper()
	rig.Eventually(t, "a machine other than "+fmt.Sprint(former), func() (bool, any) {
		var names []string
		for _, m := range p.listMachines(t) {
			conditions, _, _ := unstructured.NestedSlice(m.Object, "status", "conditions")
			if len(conditions) > 0 && time.Since(m.GetCreationTimestamp().Time) > clockSkew {
				name = m.GetName()
			}
			names = append(names, m.GetName())
		}
		return len(names) == 1 && name == names[0] && !slices.Contains(former, name), names
	})
	return name
}

// awaitOwnerRemediated waits until the condition OwnerRemediated of a machine contains a text.
func (p pool) awaitOwnerRemediated(t *testing.T, name, want string) {
	t.Helper()
	rig.Eventually(t, "OwnerRemediated of "+name+" says "+want, func() (bool, any) {
		status, reason, message := conditionOfObject(t, p.getObject(t, machineResource, name), "OwnerRemediated")
		seen := []string{status, reason, message}
		return status == "False" && reason == "RemediationDeferred" && regexp.MustCompile(want).MatchString(message), seen
	})
}

// A set whose machines never join replaces them with a back-off, and stops after maxRetry retries. The annotation
// remediate-machine begins anew.
func TestRemediationWithBackoffAndLimit(t *testing.T) {
	t.Parallel()
	p := newPool(t, "retries", 0)
	testRig.CreatePolicy(t, p.name, p.poolName, v1alpha1.RolloutPolicySpec{Remediation: &v1alpha1.MachineSetRemediation{
		Backoff: &metav1.Duration{Duration: time.Hour}, MaxRetry: new(int32(1)),
	}})
	p.newInfrastructureTemplate(t, "retries", "1h", "backend", "inMemory", "vm", "provisioning", "startupDuration")
	p.patchPool(t, `{"spec":{"replicas":1,"template":{"spec":{"infrastructureRef":{"name":"retries"}}}}}`)

	first := p.awaitOwnMachine(t)
	p.markForRemediation(t, first)
	second := p.awaitOwnMachine(t, first)
	p.markForRemediation(t, second)
	p.awaitOwnerRemediated(
		t,
		second,
		"^Waiting until .* because 1 generation of machines failed in a row before they had joined$",
	)
	p.awaitConditionMessage(t, "ReplacementHeld", "True", "RemediationBackoff", "Machine "+second+": Waiting until")
	p.awaitConditionMessage(t, "Blocked", "True", "RemediationBackoff", "set retries does not replace machines")

	policies := testRig.MachineClient.MachineV1alpha1().RolloutPolicies(p.name)
	policy, err := policies.Get(t.Context(), p.poolName, metav1.GetOptions{})
	require.NoError(t, err)
	policy.Spec.Remediation.Backoff = &metav1.Duration{}
	_, err = policies.Update(t.Context(), policy, metav1.UpdateOptions{})
	require.NoError(t, err)
	third := p.awaitOwnMachine(t, first, second)
	p.markForRemediation(t, third)
	p.awaitOwnerRemediated(
		t,
		third,
		"^Machine won't be remediated because 2 generations of machines failed in a row before they had joined",
	)
	p.awaitConditionMessage(t, "ReplacementHeld", "True", "MaxRetryReached", "maxRetry of the RolloutPolicy is 1")
	p.forceReconcile(t)
	assert.Equal(t, third, p.awaitOwnMachine(t), "the retries are over")

	p.requestRemediation(t, third)
	p.awaitOwnMachine(t, first, second, third)
	rig.Eventually(t, "the count has begun anew", func() (bool, any) {
		record := p.getObject(t, machineSetResource, p.poolName).GetAnnotations()[v1alpha1.AnnotationFailedGenerations]
		return strings.Contains(record, `"count":1,`), record
	})
}

// With maxSurge, the set creates the substitute of an unhealthy machine first.
func TestSubstituteIsAvailableBeforeTheUnhealthyMachineIsDeleted(t *testing.T) {
	t.Parallel()
	p := newPool(t, "surge", 2)
	testRig.CreatePolicy(t, p.name, p.poolName, v1alpha1.RolloutPolicySpec{Remediation: &v1alpha1.MachineSetRemediation{
		MaxSurge: new(intstr.FromInt32(1)),
	}})
	p.awaitReplicaStatus(t, 2)
	bad := p.listMachines(t)[0].GetName()
	former := []string{}
	for _, m := range p.listMachines(t) {
		former = append(former, m.GetName())
	}
	p.markForRemediation(t, bad)
	p.awaitOwnerRemediated(t, bad, "^Waiting until its substitute is available")
	rig.Eventually(t, "the unhealthy machine is being deleted", func() (bool, any) {
		going, substitute := true, false
		for _, m := range p.listMachines(t) {
			if m.GetName() == bad {
				going = m.GetDeletionTimestamp() != nil
			}
			substitute = substitute || !slices.Contains(former, m.GetName()) && isMachineAvailable(&m)
		}
		require.True(t, substitute || !going, "it is deleted before its substitute is available")
		return going, []bool{going, substitute}
	})
	p.awaitReplacedMachine(t, bad, 2)
	p.awaitAndRequireCreatedMachineCount(t, 2, 3)
}
