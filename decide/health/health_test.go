package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"millwright/decide/health"
)

func newCondition(kind, status string) health.Condition {
	return health.Condition{Type: kind, Status: status, Reason: "Because"}
}

func TestDecideNodeHealth(t *testing.T) {
	bad := []string{"KernelDeadlock", "DiskPressure"}
	ready, notReady, silent := newCondition(
		"Ready",
		"True",
	), newCondition(
		"Ready",
		"False",
	), newCondition(
		"Ready",
		"Unknown",
	)
	noPressure := newCondition("DiskPressure", "False")
	pressure := newCondition("DiskPressure", "True")
	unclear := newCondition("DiskPressure", "Unknown")
	odd := newCondition("Odd", "True") // a condition type that is not in bad
	for _, row := range []struct {
		name       string
		conditions []health.Condition
		why        string // expected reason; empty for a healthy node
	}{
		{"no condition at all", nil, "no Ready condition reported yet"},
		{"Ready is missing, pressure False", []health.Condition{noPressure}, "no Ready condition reported yet"},
		{"Ready is missing, pressure True", []health.Condition{pressure}, "DiskPressure is True (Because)"},
		{"Ready", []health.Condition{ready}, ""},
		{"Ready, pressure False", []health.Condition{ready, noPressure}, ""},
		{"Ready, pressure True", []health.Condition{ready, pressure}, "DiskPressure is True (Because)"},
		{"Ready, pressure Unknown counts as bad", []health.Condition{ready, unclear}, "DiskPressure is Unknown (Because)"},
		{"Ready, another condition True", []health.Condition{ready, odd}, ""},
		{"not Ready", []health.Condition{notReady}, "Ready is False (Because)"},
		{"not Ready, pressure False", []health.Condition{notReady, noPressure}, "Ready is False (Because)"},
		{"not Ready, pressure True", []health.Condition{notReady, pressure}, "DiskPressure is True (Because), Ready is False (Because)"},
		{"not Ready, pressure Unknown", []health.Condition{notReady, unclear}, "DiskPressure is Unknown (Because), Ready is False (Because)"},
		{"silent", []health.Condition{silent}, "Ready is Unknown (Because)"},
		{"silent, pressure False", []health.Condition{silent, noPressure}, "Ready is Unknown (Because)"},
		{"silent, pressure True", []health.Condition{pressure, silent}, "DiskPressure is True (Because), Ready is Unknown (Because)"},
	} {
		t.Run(row.name, func(t *testing.T) {
			healthy, why := health.DecideNodeHealth(row.conditions, bad)
			assert.Equal(t, row.why == "", healthy)
			assert.Equal(t, row.why, why)
		})
	}
}

func TestNodeHealthWithoutBadConditionTypes(t *testing.T) {
	healthy, _ := health.DecideNodeHealth(
		[]health.Condition{newCondition("Ready", "True"), newCondition("DiskPressure", "True")},
		nil,
	)
	assert.True(t, healthy, "only Ready counts")
	healthy, why := health.DecideNodeHealth([]health.Condition{newCondition("Ready", "False")}, nil)
	assert.False(t, healthy, "Ready always counts")
	assert.Equal(t, "Ready is False (Because)", why)
}

func TestBadConditionStart(t *testing.T) {
	at := func(c health.Condition, minutes int) health.Condition {
		c.Since = noon.Add(time.Duration(minutes) * time.Minute)
		return c
	}
	silent, pressure := newCondition("Ready", "Unknown"), newCondition("DiskPressure", "Unknown")
	for _, row := range []struct {
		name       string
		conditions []health.Condition
		since      time.Time
	}{
		{"no condition", nil, time.Time{}},
		{"all is well", []health.Condition{at(newCondition("Ready", "True"), 1), at(newCondition("DiskPressure", "False"), 2)}, time.Time{}},
		{"not Ready", []health.Condition{at(silent, 3), at(newCondition("DiskPressure", "False"), 2)}, noon.Add(3 * time.Minute)},
		{"the first of two", []health.Condition{at(silent, 3), at(pressure, 2)}, noon.Add(2 * time.Minute)},
		{"the first of two, in the other order", []health.Condition{at(pressure, 2), at(silent, 3)}, noon.Add(2 * time.Minute)},
		{"nobody asked about it", []health.Condition{at(silent, 3), at(newCondition("Odd", "True"), 1)}, noon.Add(3 * time.Minute)},
		{"one does not tell", []health.Condition{silent, at(pressure, 2)}, noon.Add(2 * time.Minute)},
		{"one does not tell, in the other order", []health.Condition{at(pressure, 2), silent}, noon.Add(2 * time.Minute)},
		{"none tells", []health.Condition{silent, pressure}, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.since, health.BadConditionStart(row.conditions, []string{"DiskPressure"}))
		})
	}
}
