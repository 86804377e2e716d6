package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/health"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const silence = "node m-1: Ready is Unknown (NodeStatusUnknown)"

// edit changes the facts of a machine.
type edit func(*health.Facts)

// facts returns what is known at noon of a lone machine in this phase. It was created 19 minutes ago and may take 20,
// it is in its phase for 5 minutes, and its node is well.
func facts(phase string, edits ...edit) health.Facts {
	f := health.Facts{
		Name:        "m-1",
		Phase:       phase,
		Instance:    true,
		Node:        health.Node{NodeName: "m-1", Healthy: true},
		Replacement: health.Replacement{Alone: true},
		Clocks: health.Clocks{
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

func sick(f *health.Facts)      { f.Healthy, f.Why = false, silence }
func noNode(f *health.Facts)    { f.Healthy, f.Why = false, "node m-1 is not registered" }
func nodeGoing(f *health.Facts) { f.NodeDeleting = true }
func nodeHeld(f *health.Facts) {
	f.NodeWaits, f.Why = "its critical components are not ready", "node m-1: its critical components are not ready"
}
func noTarget(f *health.Facts) { f.NoTarget, f.Healthy = true, false }
func tooLate(f *health.Facts)  { f.CreateBy = f.Now }
func inSet(f *health.Facts)    { f.Alone = false }
func due(f *health.Facts)      { f.Due = true }
func granted(f *health.Facts)  { f.Granted = true }
func endless(f *health.Facts)  { f.NoTimeout = true }
func breaker(f *health.Facts)  { f.Breaker = "8 of 10 nodes look dead at once" }

// sickFor is sick, since so long ago as the health clock says.
func sickFor(d time.Duration) edit {
	return func(f *health.Facts) {
		sick(f)
		f.UnhealthySince = f.Now.Add(-d)
	}
}

func gone(f *health.Facts) { f.InstanceGoneAt = f.Now.Add(-time.Second) }

func noInstance(f *health.Facts) { f.Instance, f.Healthy, f.NodeName = false, false, "" }

const overdue = 10 * time.Minute

// TestPhasesFollowTheTableOfMCM goes through MCM's table of phases, except for in-place updates and what a create call
// brings.
func TestPhasesFollowTheTableOfMCM(t *testing.T) {
	for _, row := range []struct {
		name  string
		facts health.Facts
		to    string // empty when the phase stays
	}{
		{"new, in time", facts("", noInstance), ""},
		{"new, too late", facts("", noInstance, tooLate), "Failed"},
		{"instance on record and not initialised, too late", facts("", tooLate), "Failed"},
		{"creation keeps failing, in time", facts("CrashLoopBackOff", noInstance), ""},
		{"creation keeps failing, too late", facts("CrashLoopBackOff", noInstance, tooLate), "Failed"},
		{"initialisation keeps failing, too late", facts("CrashLoopBackOff", tooLate), "Failed"},
		{"Pending, in time", facts("Pending", noNode), ""},
		{"Pending, too late", facts("Pending", noNode, tooLate), "Failed"},
		{"Pending without an instance, too late", facts("Pending", noInstance, tooLate), "Failed"},
		{"Pending, the node is not ready, too late", facts("Pending", sick, tooLate), "Failed"},
		{"Pending without a target", facts("Pending", noTarget), "Available"},
		{"Pending without a target, late", facts("Pending", noTarget, tooLate), "Available"},
		{"Available without a target", facts("Available", noTarget), "Available"},
		{"Available without a target, and long ago", facts("Available", noTarget, tooLate), "Available"},
		{"no target, and its instance is not initialised", facts("", noTarget), ""},
		{"Available, and a target came: its node has joined", facts("Available"), "Running"},
		{"Pending, the node has joined", facts("Pending"), "Running"},
		{"Pending, the node has joined at the last moment", facts("Pending", tooLate), "Running"},
		{"Pending, the node goes", facts("Pending", nodeGoing), ""},
		{"Pending with the critical taint", facts("Pending", nodeHeld), ""},
		{"Pending with the critical taint, too late", facts("Pending", nodeHeld, tooLate), "Failed"},
		{"Running, and well", facts("Running"), ""},
		{"Running and well: no creation timeout any more", facts("Running", tooLate), ""},
		{"Running, the critical taint comes back", facts("Running", nodeHeld), ""},
		{"the kubelet is silent", facts("Running", sick), "Unknown"},
		{"a condition is bad", facts("Running", func(f *health.Facts) { f.Healthy, f.Why = false, "node m-1: DiskPressure is True (Full)" }), "Unknown"},
		{"the node is missing", facts("Running", noNode), "Unknown"},
		{"unhealthy for longer than its timeout: Unknown comes first", facts("Running", sick, func(f *health.Facts) { f.Since, f.BadSince = noon.Add(-time.Hour), noon.Add(-time.Hour) }), "Unknown"},
		{"the node is being deleted", facts("Running", nodeGoing), "Unknown"},
		{"well again", facts("Unknown"), "Running"},
		{"well again when the timeout has ended", facts("Unknown", sickFor(overdue), func(f *health.Facts) { f.Healthy = true }), "Running"},
		{"well again with the critical taint", facts("Unknown", nodeHeld), "Running"},
		{"still sick, in time", facts("Unknown", sickFor(overdue-time.Second)), ""},
		{"sick, too late", facts("Unknown", sickFor(overdue)), "Failed"},
		{"no node, in time", facts("Unknown", sickFor(overdue-time.Second), noNode), ""},
		{"no node, too late", facts("Unknown", sickFor(overdue), noNode), "Failed"},
		{"no timeout", facts("Unknown", sickFor(1000*time.Hour), endless), ""},
		{"Failed, and well", facts("Failed"), ""},
		{"Failed, well and granted", facts("Failed", due, granted), ""},
		{"Failed, and sick", facts("Failed", sick), ""},
		{"Terminating, and well", facts("Terminating"), ""},
		{"Terminating, and sick", facts("Terminating", sick), ""},
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

// What people and dashboards read of each change, and what it does to the clock and to the condition.
func TestVerdicts(t *testing.T) {
	tenAgo := noon.Add(-overdue)
	for _, row := range []struct {
		name    string
		facts   health.Facts
		verdict health.Verdict
	}{
		{
			"joined", facts("Pending", func(f *health.Facts) { f.Created = noon.Add(-90 * time.Second) }),
			health.Verdict{
				Why: "Machine m-1 successfully joined the cluster in 1m30s",
				Change: &health.Change{
					Phase: "Running", Operation: "Create", State: "Successful", Reason: "Joined", Joined: true,
					Message: "Machine m-1 successfully joined the cluster in 1m30s",
				},
			},
		},
		{
			"no target", facts("Pending", noTarget, func(f *health.Facts) { f.Why = "instance i-1 exists; there is no target cluster" }),
			health.Verdict{
				Why: "instance i-1 exists; there is no target cluster",
				Change: &health.Change{
					Phase: "Available", Operation: "Create", State: "Successful", Reason: "InstanceCreated",
					Message: "Created machine on cloud provider",
				},
			},
		},
		{
			"the creation timeout", facts("Pending", noNode, tooLate, func(f *health.Facts) { f.Created = noon.Add(-20 * time.Minute) }),
			failed("Create", "CreationTimeout", "Machine m-1 failed to join the cluster in 20m: node m-1 is not registered"),
		},
		{
			"without an instance", facts("", noInstance, tooLate, func(f *health.Facts) { f.Created = noon.Add(-90 * time.Second) }),
			failed("Create", "CreationTimeout", "Machine m-1 failed to join the cluster in 1m30s: the provider has not created its instance"),
		},
		{
			"the kubelet is silent", facts("Running", sick),
			health.Verdict{
				Why: "Machine m-1 is unhealthy - changing MachinePhase to Unknown: " + silence, Look: true,
				Clock: &health.Clock{UnhealthySince: noon},
				Change: &health.Change{
					Phase: "Unknown", Operation: "HealthCheck", State: "Processing", Reason: "Unhealthy", Warning: true,
					Message: "Machine m-1 is unhealthy - changing MachinePhase to Unknown: " + silence,
				},
			},
		},
		{
			"waits", facts("Unknown", sickFor(time.Minute)),
			health.Verdict{Why: silence, Deadline: noon.Add(9 * time.Minute), Look: true},
		},
		{
			"the timeout has ended", facts("Unknown", sickFor(overdue)),
			failed("HealthCheck", "HealthTimeout", "Machine m-1 has not been healthy for 10m: "+silence),
		},
		{
			"the timeout has ended below a deployment", facts("Unknown", sickFor(overdue), inSet),
			waiting("HealthTimeout", "Machine m-1 has not been healthy for 10m: "+silence+"; waits until its deployment's replacement budget allows it"),
		},
		{
			"the timeout has ended while the breaker is open", facts("Unknown", sickFor(overdue), breaker),
			held("HealthTimeout", "Machine m-1 has not been healthy for 10m: "+silence+"; held: 8 of 10 nodes look dead at once"),
		},
		{
			"its replacement was granted", facts("Unknown", sickFor(overdue), inSet, due, granted),
			health.Verdict{
				Why: "Machine m-1 is to be replaced: " + silence,
				Change: &health.Change{
					Phase: "Failed", Operation: "HealthCheck", State: "Failed", Reason: "ReplacementGranted", Warning: true,
					Message: "Machine m-1 is to be replaced: " + silence,
				},
			},
		},
		{
			"well again", facts("Unknown", sickFor(overdue), due, func(f *health.Facts) { f.Healthy = true }),
			health.Verdict{
				Why:   "Machine m-1 successfully re-joined the cluster",
				Clock: &health.Clock{UnhealthySince: tenAgo, RecoveredAt: noon},
				Due:   &health.Due{Reason: "Recovered", Message: "Machine m-1 successfully re-joined the cluster"},
				Change: &health.Change{
					Phase: "Running", Operation: "HealthCheck", State: "Successful", Reason: "Rejoined",
					Message: "Machine m-1 successfully re-joined the cluster",
				},
			},
		},
		{
			"the node is being deleted", facts("Unknown", nodeGoing),
			failed("HealthCheck", "NodeDeleted", "Machine m-1: node m-1 is being deleted"),
		},
		{
			"the instance is gone", facts("Unknown", sickFor(time.Second), gone),
			failed("HealthCheck", "InstanceGone", "Machine m-1: the provider no longer has its instance"),
		},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.verdict, health.Decide(row.facts)) })
	}
}

func failed(operation, reason, message string) health.Verdict {
	return health.Verdict{
		Why: message,
		Due: &health.Due{True: true, Reason: reason, Message: message},
		Change: &health.Change{
			Phase:     "Failed",
			Operation: operation,
			State:     "Failed",
			Reason:    reason,
			Warning:   true,
			Message:   message,
		},
	}
}

// waiting is the verdict of a machine that is due and has to wait. The provider may still know why its node is silent.
func waiting(reason, message string) health.Verdict {
	return health.Verdict{Why: message, Due: &health.Due{True: true, Reason: reason, Message: message}, Look: true}
}

// held is the verdict while the breaker is open.
func held(reason, message string) health.Verdict {
	v := waiting(reason, message)
	v.Held = true
	return v
}

func TestDurationsInMessagesAreThoseOfASpec(t *testing.T) {
	for timeout, want := range map[time.Duration]string{
		0: "0s", 20 * time.Second: "20s", 10 * time.Minute: "10m", 100 * time.Second: "1m40s", 168 * time.Hour: "168h",
	} {
		v := health.Decide(facts("Unknown", sickFor(timeout), func(f *health.Facts) { f.Timeout = timeout }))
		assert.Equal(t, "Machine m-1 has not been healthy for "+want+": "+silence, v.Why)
	}
}
