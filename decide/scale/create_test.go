package scale_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/phrase"
	"millwright/decide/scale"
)

func TestMissingMachinesAreCreated(t *testing.T) {
	for _, row := range []struct {
		name   string
		o      scale.Facts
		create int
		hold   string
	}{
		{name: "what is missing is created", o: newSet(5, runningMembers(1)...), create: 4},
		{name: "too few", o: newSet(4, runningMembers(2)...), create: 2},
		{name: "as many as wanted", o: newSet(3, runningMembers(3)...)},
		{name: "none wanted and none there", o: newSet(0)},
		{name: "one that is fresh counts", o: newSet(1, runningMembers(1, asFreshMachine)...)},
		{name: "one that failed and may not be replaced yet counts", o: newSet(1, runningMembers(1, asFailedMachine, asUnreplaceableMachine)...)},
		{name: "one that is being deleted does not", o: newSet(2, append(runningMembers(1), newMember("z", 0, asDeletingMachine))...), create: 1},
		{name: "at most one batch at a time", o: newSet(1000), create: scale.MaxCreations},
		{name: "members without any labels", o: newSet(2, runningMembers(1, func(m *scale.Member) { m.MCM.Labelled = false })...), create: 1},
		{name: "a set that is being deleted creates nothing", o: withChange(newSet(3), func(o *scale.Facts) { o.Deleting = true })},
		{name: "an invalid set changes nothing", o: withChange(newSet(3, runningMembers(1, asFailedMachine)...), func(o *scale.Facts) { o.InvalidReason = "the selector does not match the template" }), hold: "the selector does not match the template"},
		{name: "what makes no sense in other fields is tolerated", o: withChange(newSet(1), func(o *scale.Facts) {
			o.DeletionOrder, o.MCM.MaxAutoPreserved, o.ReportedStatus.PeakReplicas, o.MinReadyDuration = "Unheard", -3, -1, -5
		}), create: 1},
		{name: "a size below zero wants none", o: newSet(-2)},
		{name: "paused", o: withChange(newSet(3), pauseSet), hold: "MachineSet has the cluster.x-k8s.io/paused annotation"},
		{name: "paused by its owner", o: withChange(newSet(3), func(o *scale.Facts) { o.PauseSentences = []string{phrase.PausedSentence("MachineDeployment")} }), hold: "MachineDeployment has the cluster.x-k8s.io/paused annotation"},
		{name: "frozen", o: withChange(newSet(3, runningMembers(1)...), func(o *scale.Facts) { o.MCM.Freeze.HasLabel = true }), hold: "3 wanted, 1 there; none is created: MachineSet is frozen"},
		{name: "not to scale up", o: withChange(newSet(1), stopScaleUp), hold: "1 wanted, 0 there; none is created: MachineSet has the label scale-up-disabled"},
		{name: "what the template names is missing", o: withChange(newSet(1), func(o *scale.Facts) { o.MissingObjectKinds = []string{"MachineClass"} }), hold: "1 wanted, 0 there; none is created: MachineClass does not exist"},
		{name: "a preflight check fails", o: withChange(newSet(1), func(o *scale.Facts) { o.Preflight = upgradingControlPlane() }), hold: `1 wanted, 0 there; none is created: ControlPlane cp is upgrading ("ControlPlaneIsStable" preflight check failed)`},
		{name: "and is of no interest when none is missing", o: withChange(newSet(1, runningMembers(1)...), func(o *scale.Facts) { o.Preflight = upgradingControlPlane() })},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := scale.Decide(row.o)
			assert.Len(t, d.Create, row.create)
			assert.Equal(t, row.hold, d.Hold)
			assert.Empty(t, d.Delete)
			if row.create == 0 {
				assert.True(t, isIdleDecision(d))
				assert.True(t, d.Recheck.IsZero(), "what blocks a creation wakes the set when it changes, not the clock")
			}
		})
	}
}

func withChange(o scale.Facts, change func(*scale.Facts)) scale.Facts {
	change(&o)
	return o
}

func TestBatchSizesGrow(t *testing.T) {
	for _, row := range []struct {
		name string
		n    int
		want []int
	}{
		{"nothing to do", 0, nil},
		{"less than nothing", -1, nil},
		{"one", 1, []int{1}},
		{"twice as many each time", 7, []int{1, 2, 4}},
		{"and what is left", 50, []int{1, 2, 4, 8, 16, 19}},
		{"never more than 32", 100, []int{1, 2, 4, 8, 16, 32, 32, 5}},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.want, scale.BatchSizes(row.n)) })
	}
}

func TestNamesOfNewMachines(t *testing.T) {
	t.Run("the set's name and a random end", func(t *testing.T) {
		assert.Regexp(t, `^s-[bcdfghjklmnpqrstvwxz2456789]{5}$`, scale.Decide(newSet(1)).Create[0])
	})
	t.Run("each another one, and none that is taken", func(t *testing.T) {
		o := newSet(50)
		all := scale.Decide(o).Create
		seen := map[string]bool{}
		for _, name := range all {
			require.False(t, seen[name])
			seen[name] = true
		}
		for _, name := range all[:11] {
			o.Orphans = append(o.Orphans, scale.Orphan{Name: name})
		}
		o.Members = []scale.Member{newMember(all[11], 0)}
		again := scale.Decide(o).Create
		require.Len(t, again, 49)
		for _, name := range all[:12] {
			require.NotContains(t, again, name)
		}
	})
	t.Run("the same look gives the same names, so that a retry meets what it made", func(t *testing.T) {
		assert.Equal(t, scale.Decide(newSet(50)), scale.Decide(newSet(50)))
	})
	t.Run("too long, it is cut and keeps its random end", func(t *testing.T) {
		for _, length := range []int{57, 58, 200} {
			o := newSet(2)
			o.NameParts = []string{strings.Repeat("x", length) + "-", ""}
			d := scale.Decide(o)
			for _, name := range d.Create {
				assert.LessOrEqual(t, len(name), 63, "%d characters", length)
			}
			assert.Equal(t, d.Create[0][:58], d.Create[1][:58])
			assert.NotEqual(t, d.Create[0][58:], d.Create[1][58:])
		}
	})
}

// Template changes that need no new machine are copied to the machines last, so that a failed write of a machine does
// not delay other changes.
func TestTemplateChangesAreCopiedToMachines(t *testing.T) {
	stale := withDrift("node template")
	for _, row := range []struct {
		name string
		o    scale.Facts
		sync []string
	}{
		{"those that differ", newSet(2, newMember("a", 0), newMember("b", 0, stale)), []string{"b"}},
		{"no write without a difference", newSet(2, runningMembers(2)...), nil},
		{"one that is being deleted, too: its timeouts are told to it", newSet(0, newMember("a", 0, stale, asDeletingMachine)), []string{"a"}},
		{"creation comes before", newSet(2, newMember("a", 0, stale)), nil},
		{"also if the last change of machines was refused", withChange(newSet(2, newMember("a", 0, stale)), func(o *scale.Facts) { o.LastWriteFailure = scale.WriteFailure{Message: "quota", Changing: true} }), nil},
		{"but not if the last creation was refused", withChange(newSet(2, newMember("a", 0, stale)), func(o *scale.Facts) { o.LastWriteFailure.Message = "quota" }), []string{"a"}},
		{"what waits is no hindrance", withChange(newSet(2, newMember("a", 0, stale)), func(o *scale.Facts) { o.MCM.Freeze.HasLabel = true }), []string{"a"}},
		{"a set that is being deleted still hurries its machines", withChange(newSet(1, newMember("a", 0, stale, asDeletingMachine)), func(o *scale.Facts) { o.Deleting = true }), []string{"a"}},
		{"a paused one does not", withChange(newSet(1, newMember("a", 0, stale)), pauseSet), nil},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Equal(t, row.sync, targetNames(scale.Decide(row.o).Sync)) })
	}
	assert.Equal(t, "node template", scale.Decide(newSet(1, runningMembers(1, stale)...)).Sync[0].Why)
}

func TestAClosedSetCreatesNoMachine(t *testing.T) {
	o := newSet(2, runningMembers(1)...)
	o.Remediation.SubstitutesElsewhere = noScaleUpReason
	d := scale.Decide(o)
	assert.Empty(t, d.Create)
	assert.Equal(t, "2 wanted, 1 there; none is created: "+noScaleUpReason, d.Hold)
}
