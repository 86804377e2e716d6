//go:build integration

package capi

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/test/integration/rig"
)

// A user rolls out a deployment of Cluster API with the command line. The user pauses the rollout, reads the plan,
// resumes the rollout, follows it to its end, and rolls back. The next rollout is held when half of it is done, and
// then rolled back.
func TestCommandLineRollsOutAClusterAPIDeployment(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "cli", 2)
	f.awaitMachinesOfTemplate(t, f.name, 2)
	named := "machinedeployment.cluster.x-k8s.io/" + f.name + "/" + f.poolName
	starter := func(arguments ...string) string {
		t.Helper()
		return strings.Join(testRig.RunMillwright(t, append([]string{"rollout"}, arguments...)...), "\n")
	}
	assert.Contains(t, starter("status", named), f.name+"/"+f.poolName+": revision 1 is complete.")

	assert.Contains(
		t,
		starter("pause", named, "--reason", "until the plan is read", "--as-user", "ann"),
		"deployment "+f.name+"/"+f.poolName+" is paused",
	)
	f.newInfrastructureTemplate(t, "cli-2")
	f.setInfrastructureTemplate(t, "cli-2")
	f.awaitConditionMessage(t, "Blocked", "True", "Paused", "until the plan is read")
	assert.Contains(
		t,
		starter("status", f.name+"/"+f.poolName),
		"it is paused by ann (until the plan is read): its template is not rolled out",
	)
	plan := starter("plan", named)
	assert.Contains(t, plan, "It is paused: these steps follow when it resumes.")
	assert.Contains(t, plan, "STEP")
	_, _, blocked := f.readCondition(t, "Blocked")
	assert.Contains(
		t,
		strings.Join(testRig.RunMillwright(t, "explain", named, "--temporal-address", testRig.Stack.TemporalAddress()), "\n"),
		blocked,
	)

	assert.Contains(t, starter("resume", named, "--as-user", "ann"), "is no longer paused")
	assert.Contains(t, starter("watch", named, "--interval", "1s"), "revision 2 is complete")
	f.awaitMachinesOfTemplate(t, "cli-2", 2)
	history := starter("history", named)
	assert.Contains(t, history, "REVISION   FORMERLY   SET ")
	assert.Contains(t, history, "cli-2")

	assert.Contains(
		t,
		starter("undo", named, "--reason", "the image is bad", "--as-user", "ann"),
		"the template of that revision returns",
	)
	f.awaitMachinesOfTemplate(t, f.name, 2)
	assert.Contains(t, starter("status", named), "revision 3 is complete")

	testRig.CreatePolicy(
		t,
		f.name,
		f.poolName,
		v1alpha1.RolloutPolicySpec{Steps: []v1alpha1.RolloutStep{{Replicas: intstr.FromInt32(1), Approve: true}}},
	)
	f.newInfrastructureTemplate(t, "cli-3")
	f.setInfrastructureTemplate(t, "cli-3")
	both := map[string]int{f.name: 1, "cli-3": 1}
	rig.Eventually(t, "the step has its machine", func() (bool, any) {
		made := f.countMachinesByTemplate(t)
		return maps.Equal(made, both), fmt.Sprint(made, f.conditionLines(t))
	})
	assert.Contains(t, starter("cancel", named, "--reason", "it looks odd", "--as-user", "ann"), "held")
	f.awaitConditionMessage(t, "Blocked", "True", "Hold", "it looks odd")
	assert.Contains(t, starter("status", named), "revision 4 is held by ann (it looks odd)")
	assert.Equal(t, both, f.countMachinesByTemplate(t))
	assert.Contains(t, starter("resume", named, "--as-user", "ann"), "is no longer held")
	// the RolloutPolicy would make the rollback wait at its step, too
	require.NoError(
		t,
		testRig.MachineClient.MachineV1alpha1().
			RolloutPolicies(f.name).
			Delete(t.Context(), f.poolName, metav1.DeleteOptions{}),
	)
	assert.Contains(
		t,
		starter("cancel", named, "--back", "--reason", "it is odd", "--as-user", "ann"),
		"the template of that revision returns",
	)
	f.awaitMachinesOfTemplate(t, f.name, 2)
	assert.Contains(t, starter("status", named), "revision 5 is complete")
}
