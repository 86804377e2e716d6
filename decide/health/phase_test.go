package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/health"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const unknownReadyReason = "node m-1: Ready is Unknown (NodeStatusUnknown)"

// factsEdit changes the facts of a machine.
type factsEdit func(*health.Facts)

// newFacts returns the facts at noon of a machine without a set, in this phase. The machine was created 19 minutes ago
// with a creation timeout of 20 minutes. The machine has been in its phase for 5 minutes, and its node is healthy.
func newFacts(phase string, edits ...factsEdit) health.Facts {
	f := health.Facts{
		Name:        "m-1",
		Phase:       phase,
		Instance:    true,
		Node:        health.Node{NodeName: "m-1", Healthy: true},
		Replacement: health.Replacement{Alone: true},
		TimeoutClocks: health.TimeoutClocks{
			Created:  noon.Add(-19 * time.Minute),
			CreateBy: noon.Add(time.Minute),
			Since:    noon.Add(-5 * time.Minute),
		},
		Timeout: 10 * time.Minute,
		Now:     noon,
	}
	for _, e := range edits {
		e(&f)
	}
	return f
}

func withUnhealthyNode(f *health.Facts) { f.Healthy, f.Why = false, unknownReadyReason }
func withoutNode(f *health.Facts)       { f.Healthy, f.Why = false, "node m-1 is not registered" }
func withDeletingNode(f *health.Facts)  { f.NodeDeleting = true }
func withoutReadyComponents(f *health.Facts) {
	f.NodeWaits, f.Why = "its critical components are not ready", "node m-1: its critical components are not ready"
}
func withoutTargetCluster(f *health.Facts)     { f.NoTargetCluster, f.Healthy = true, false }
func withEndedCreationTimeout(f *health.Facts) { f.CreateBy = f.Now }
func withRequiredGrant(f *health.Facts)        { f.Alone = false }
func withReplacementDue(f *health.Facts)       { f.Due = true }
func withReplacementGrant(f *health.Facts)     { f.Granted = true }
func withoutHealthTimeout(f *health.Facts)     { f.NoTimeout = true }
func withOpenBreaker(f *health.Facts)          { f.Breaker = "8 of 10 nodes look dead at once" }

// withUnhealthyDuration makes the node unhealthy for the duration d until now.
func withUnhealthyDuration(d time.Duration) factsEdit {
	return func(f *health.Facts) {
		withUnhealthyNode(f)
		f.UnhealthySince = f.Now.Add(-d)
	}
}

func withInstanceGone(f *health.Facts) { f.InstanceGoneAt = f.Now.Add(-time.Second) }

func withoutInstance(f *health.Facts) { f.Instance, f.Healthy, f.NodeName = false, false, "" }

const healthTimeout = 10 * time.Minute

// TestPhasesFollowTheTableOfMCM checks MCM's table of phases, except in-place updates and the results of create
// calls.
func TestPhasesFollowTheTableOfMCM(t *testing.T) {
	for _, row := range []struct {
		name  string
		facts health.Facts
		to    string // new phase; empty: the phase stays
	}{
		{"new, in time", newFacts("", withoutInstance), ""},
		{"new, too late", newFacts("", withoutInstance, withEndedCreationTimeout), "Failed"},
		{"instance on record and not initialised, too late", newFacts("", withEndedCreationTimeout), "Failed"},
		{"creation keeps failing, in time", newFacts("CrashLoopBackOff", withoutInstance), ""},
		{"creation keeps failing, too late", newFacts("CrashLoopBackOff", withoutInstance, withEndedCreationTimeout), "Failed"},
		{"initialisation keeps failing, too late", newFacts("CrashLoopBackOff", withEndedCreationTimeout), "Failed"},
		{"Pending, in time", newFacts("Pending", withoutNode), ""},
		{"Pending, too late", newFacts("Pending", withoutNode, withEndedCreationTimeout), "Failed"},
		{"Pending without an instance, too late", newFacts("Pending", withoutInstance, withEndedCreationTimeout), "Failed"},
		{"Pending, the node is not ready, too late", newFacts("Pending", withUnhealthyNode, withEndedCreationTimeout), "Failed"},
		{"Pending without a target", newFacts("Pending", withoutTargetCluster), "Available"},
		{"Pending without a target, late", newFacts("Pending", withoutTargetCluster, withEndedCreationTimeout), "Available"},
		{"Available without a target", newFacts("Available", withoutTargetCluster), "Available"},
		{"Available without a target, and long ago", newFacts("Available", withoutTargetCluster, withEndedCreationTimeout), "Available"},
		{"no target, and its instance is not initialised", newFacts("", withoutTargetCluster), ""},
		{"Available, and a target came: its node has joined", newFacts("Available"), "Running"},
		{"Pending, the node has joined", newFacts("Pending"), "Running"},
		{"Pending, the node has joined at the last moment", newFacts("Pending", withEndedCreationTimeout), "Running"},
		{"Pending, the node goes", newFacts("Pending", withDeletingNode), ""},
		{"Pending with the critical taint", newFacts("Pending", withoutReadyComponents), ""},
		{"Pending with the critical taint, too late", newFacts("Pending", withoutReadyComponents, withEndedCreationTimeout), "Failed"},
		{"Running, and well", newFacts("Running"), ""},
		{"Running and well: no creation timeout any more", newFacts("Running", withEndedCreationTimeout), ""},
		{"Running, the critical taint comes back", newFacts("Running", withoutReadyComponents), ""},
		{"the kubelet is silent", newFacts("Running", withUnhealthyNode), "Unknown"},
		{"a condition is bad", newFacts("Running", func(f *health.Facts) { f.Healthy, f.Why = false, "node m-1: DiskPressure is True (Full)" }), "Unknown"},
		{"the node is missing", newFacts("Running", withoutNode), "Unknown"},
		{"unhealthy for longer than its timeout: Unknown comes first", newFacts("Running", withUnhealthyNode, func(f *health.Facts) { f.Since, f.BadSince = noon.Add(-time.Hour), noon.Add(-time.Hour) }), "Unknown"},
		{"the node is being deleted", newFacts("Running", withDeletingNode), "Unknown"},
		{"well again", newFacts("Unknown"), "Running"},
		{"well again when the timeout has ended", newFacts("Unknown", withUnhealthyDuration(healthTimeout), func(f *health.Facts) { f.Healthy = true }), "Running"},
		{"well again with the critical taint", newFacts("Unknown", withoutReadyComponents), "Running"},
		{"still sick, in time", newFacts("Unknown", withUnhealthyDuration(healthTimeout-time.Second)), ""},
		{"sick, too late", newFacts("Unknown", withUnhealthyDuration(healthTimeout)), "Failed"},
		{"no node, in time", newFacts("Unknown", withUnhealthyDuration(healthTimeout-time.Second), withoutNode), ""},
		{"no node, too late", newFacts("Unknown", withUnhealthyDuration(healthTimeout), withoutNode), "Failed"},
		{"no timeout", newFacts("Unknown", withUnhealthyDuration(1000*time.Hour), withoutHealthTimeout), ""},
		{"Failed, and well", newFacts("Failed"), ""},
		{"Failed, well and granted", newFacts("Failed", withReplacementDue, withReplacementGrant), ""},
		{"Failed, and sick", newFacts("Failed", withUnhealthyNode), ""},
		{"Terminating, and well", newFacts("Terminating"), ""},
		{"Terminating, and sick", newFacts("Terminating", withUnhealthyNode), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			change := health.Decide(row.facts).Change
			if row.to == "" {
				assert.Nil(t, change)
				return
			}
			require.NotNil(t, change)
			assert.Equal(t, row.to, change.Phase)
		})
	}
}

// The test checks for each change the texts in lastOperation and the event, the health clock, and the condition
// ReplacementDue.
func TestVerdictForEachPhaseChange(t *testing.T) {
	tenAgo := noon.Add(-healthTimeout)
	for _, row := range []struct {
		name    string
		facts   health.Facts
		verdict health.Verdict
	}{
		{
			"joined", newFacts("Pending", func(f *health.Facts) { f.Created = noon.Add(-90 * time.Second) }),
			health.Verdict{
				Why: "Machine m-1 successfully joined the cluster in 1m30s",
				Change: &health.PhaseChange{
					Phase: "Running", Operation: "Create", State: "Successful", Reason: "Joined", Joined: true,
					Message: "Machine m-1 successfully joined the cluster in 1m30s",
				},
			},
		},
		{
			"no target", newFacts("Pending", withoutTargetCluster, func(f *health.Facts) { f.Why = "instance i-1 exists; there is no target cluster" }),
			health.Verdict{
				Why: "instance i-1 exists; there is no target cluster",
				Change: &health.PhaseChange{
					Phase: "Available", Operation: "Create", State: "Successful", Reason: "InstanceCreated",
					Message: "Created machine on cloud provider",
				},
			},
		},
		{
			"the creation timeout", newFacts("Pending", withoutNode, withEndedCreationTimeout, func(f *health.Facts) { f.Created = noon.Add(-20 * time.Minute) }),
			failedChangeVerdict("Create", "CreationTimeout", "Machine m-1 failed to join the cluster in 20m: node m-1 is not registered"),
		},
		{
			"without an instance", newFacts("", withoutInstance, withEndedCreationTimeout, func(f *health.Facts) { f.Created = noon.Add(-90 * time.Second) }),
			failedChangeVerdict("Create", "CreationTimeout", "Machine m-1 failed to join the cluster in 1m30s: the provider has not created its instance"),
		},
		{
			"the kubelet is silent", newFacts("Running", withUnhealthyNode),
			health.Verdict{
				Why: "Machine m-1 is unhealthy - changing MachinePhase to Unknown: " + unknownReadyReason, Look: true,
				Clock: &health.UnhealthyTimes{UnhealthySince: noon},
				Change: &health.PhaseChange{
					Phase: "Unknown", Operation: "HealthCheck", State: "Processing", Reason: "Unhealthy", Warning: true,
					Message: "Machine m-1 is unhealthy - changing MachinePhase to Unknown: " + unknownReadyReason,
				},
			},
		},
		{
			"waits", newFacts("Unknown", withUnhealthyDuration(time.Minute)),
			health.Verdict{Why: unknownReadyReason, Deadline: noon.Add(9 * time.Minute), Look: true},
		},
		{
			"the timeout has ended", newFacts("Unknown", withUnhealthyDuration(healthTimeout)),
			failedChangeVerdict("HealthCheck", "HealthTimeout", "Machine m-1 has not been healthy for 10m: "+unknownReadyReason),
		},
		{
			"the timeout has ended below a deployment", newFacts("Unknown", withUnhealthyDuration(healthTimeout), withRequiredGrant),
			dueMachineVerdict("HealthTimeout", "Machine m-1 has not been healthy for 10m: "+unknownReadyReason+"; waits until its deployment's replacement budget allows it"),
		},
		{
			"the timeout has ended while the breaker is open", newFacts("Unknown", withUnhealthyDuration(healthTimeout), withOpenBreaker),
			openBreakerVerdict("HealthTimeout", "Machine m-1 has not been healthy for 10m: "+unknownReadyReason+"; held: 8 of 10 nodes look dead at once"),
		},
		{
			"its replacement was granted", newFacts("Unknown", withUnhealthyDuration(healthTimeout), withRequiredGrant, withReplacementDue, withReplacementGrant),
			health.Verdict{
				Why: "Machine m-1 is to be replaced: " + unknownReadyReason,
				Change: &health.PhaseChange{
					Phase: "Failed", Operation: "HealthCheck", State: "Failed", Reason: "ReplacementGranted", Warning: true,
					Message: "Machine m-1 is to be replaced: " + unknownReadyReason,
				},
			},
		},
		{
			"well again", newFacts("Unknown", withUnhealthyDuration(healthTimeout), withReplacementDue, func(f *health.Facts) { f.Healthy = true }),
			health.Verdict{
				Why:   "Machine m-1 successfully re-joined the cluster",
				Clock: &health.UnhealthyTimes{UnhealthySince: tenAgo, RecoveredAt: noon},
				Due:   &health.ReplacementDue{Reason: "Recovered", Message: "Machine m-1 successfully re-joined the cluster"},
				Change: &health.PhaseChange{
					Phase: "Running", Operation: "HealthCheck", State: "Successful", Reason: "Rejoined",
					Message: "Machine m-1 successfully re-joined the cluster",
				},
			},
		},
		{
			"the node is being deleted", newFacts("Unknown", withDeletingNode),
			failedChangeVerdict("HealthCheck", "NodeDeleted", "Machine m-1: node m-1 is being deleted"),
		},
		{
			"the instance is gone", newFacts("Unknown", withUnhealthyDuration(time.Second), withInstanceGone),
			failedChangeVerdict("HealthCheck", "InstanceGone", "Machine m-1: the provider no longer has its instance"),
		},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.verdict, health.Decide(row.facts)) })
	}
}

func failedChangeVerdict(operation, reason, message string) health.Verdict {
	return health.Verdict{
		Why: message,
		Due: &health.ReplacementDue{True: true, Reason: reason, Message: message},
		Change: &health.PhaseChange{
			Phase:     "Failed",
			Operation: operation,
			State:     "Failed",
			Reason:    reason,
			Warning:   true,
			Message:   message,
		},
	}
}

// dueMachineVerdict returns the verdict of a machine that is due and has to wait. The provider is asked whether the
// instance exists.
func dueMachineVerdict(reason, message string) health.Verdict {
	return health.Verdict{
		Why:  message,
		Due:  &health.ReplacementDue{True: true, Reason: reason, Message: message},
		Look: true,
	}
}

// openBreakerVerdict returns the verdict while the breaker is open.
func openBreakerVerdict(reason, message string) health.Verdict {
	v := dueMachineVerdict(reason, message)
	v.Held = true
	return v
}

func TestMessagesFormatDurationsAsInASpec(t *testing.T) {
	for timeout, want := range map[time.Duration]string{
		0: "0s", 20 * time.Second: "20s", 10 * time.Minute: "10m", 100 * time.Second: "1m40s", 168 * time.Hour: "168h",
	} {
		v := health.Decide(newFacts("Unknown", withUnhealthyDuration(timeout), func(f *health.Facts) { f.Timeout = timeout }))
		assert.Equal(t, "Machine m-1 has not been healthy for "+want+": "+unknownReadyReason, v.Why)
	}
}
