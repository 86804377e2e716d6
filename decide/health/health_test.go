package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/health"
)

func TestDecide(t *testing.T) {
	bad := []string{"KernelDeadlock", "DiskPressure"}
	condition := func(kind, status string) health.Condition {
		return health.Condition{Type: kind, Status: status, Reason: "Because"}
	}
	ready := condition("Ready", "True")
	for _, row := range []struct {
		name       string
		conditions []health.Condition
		healthy    bool
		why        string
	}{
		{"ready", []health.Condition{ready}, true, ""},
		{"no condition", nil, false, "no Ready condition reported yet"},
		{"not ready", []health.Condition{condition("Ready", "False")}, false, "Ready is False (Because)"},
		{"kubelet silent", []health.Condition{condition("Ready", "Unknown")}, false, "Ready is Unknown (Because)"},
		{"a bad condition", []health.Condition{ready, condition("DiskPressure", "True")}, false, "DiskPressure is True (Because)"},
		{"an unknown bad condition counts as bad", []health.Condition{ready, condition("KernelDeadlock", "Unknown")}, false, "KernelDeadlock is Unknown (Because)"},
		{"a condition that nobody asked about", []health.Condition{ready, condition("Odd", "True")}, true, ""},
		{"two reasons, sorted", []health.Condition{condition("Ready", "False"), condition("DiskPressure", "True")}, false, "DiskPressure is True (Because), Ready is False (Because)"},
	} {
		t.Run(row.name, func(t *testing.T) {
			healthy, why := health.Decide(row.conditions, bad)
			assert.Equal(t, row.healthy, healthy)
			assert.Equal(t, row.why, why)
		})
	}
}

func TestTransition(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	facts := health.Facts{Name: "m-1", Healthy: true, Created: now.Add(-90 * time.Second), Now: now}

	joined := health.Transition(facts)
	assert.Equal(t, "Running", joined.Phase)
	assert.Equal(t, "Create", joined.Operation)
	assert.Equal(t, "Machine m-1 successfully joined the cluster in 1m30s", joined.Message)

	facts.Joined = true
	assert.Equal(t, "HealthCheck", health.Transition(facts).Operation)

	facts.Healthy, facts.Why = false, "node m-1 is not registered"
	lost := health.Transition(facts)
	assert.Equal(t, "Unknown", lost.Phase)
	assert.True(t, lost.Warning)
	assert.Equal(t, "Machine m-1 is unhealthy - changing MachinePhase to Unknown: node m-1 is not registered", lost.Message)
}
