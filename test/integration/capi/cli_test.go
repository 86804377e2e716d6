//go:build integration

package capi

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A person rolls a deployment of Cluster API out with the command line: pauses it, looks at what would happen, resumes, follows it to its end, and
// goes back.
func TestStarterRollsADeploymentOfClusterAPIOut(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "cli", 2)
	f.awaitMade(t, f.name, 2, 90*time.Second)
	named := "machinedeployment.cluster.x-k8s.io/" + f.name + "/" + f.set
	starter := func(arguments ...string) string {
		t.Helper()
		return strings.Join(r.Starter(t, append([]string{"rollout"}, arguments...)...), "\n")
	}
	assert.Contains(t, starter("status", named), f.name+"/"+f.set+": revision 1 is complete.")

	assert.Contains(t, starter("pause", named, "--reason", "until the plan is read", "--as-user", "ann"), "deployment "+f.name+"/"+f.set+" is paused")
	f.template(t, "cli-2")
	f.change(t, "cli-2")
	f.awaitMessage(t, "Blocked", "True", "Paused", "until the plan is read", 30*time.Second)
	assert.Contains(t, starter("status", f.name+"/"+f.set), "it is paused by ann (until the plan is read): its template is not rolled out")
	plan := starter("plan", named)
	assert.Contains(t, plan, "It is paused: these steps follow when it resumes.")
	assert.Contains(t, plan, "STEP")
	_, _, blocked := f.condition(t, "Blocked")
	assert.Contains(t, strings.Join(r.Starter(t, "explain", named, "--temporal-address", r.Stack.TemporalAddress()), "\n"), blocked)

	assert.Contains(t, starter("resume", named, "--as-user", "ann"), "is no longer paused")
	assert.Contains(t, starter("watch", named, "--interval", "1s"), "revision 2 is complete")
	f.awaitMade(t, "cli-2", 2, 60*time.Second)
	history := starter("history", named)
	assert.Contains(t, history, "REVISION   FORMERLY   SET ")
	assert.Contains(t, history, "cli-2")

	assert.Contains(t, starter("undo", named, "--reason", "the image is bad", "--as-user", "ann"), "the template of that revision returns")
	f.awaitMade(t, f.name, 2, 120*time.Second)
	assert.Contains(t, starter("status", named), "revision 3 is complete")
}
