package drain_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/drain"
)

type volumesByName = map[string]drain.VolumeState

var (
	volumeAttachedHere      = drain.VolumeState{AttachedHere: true}
	volumeAttachedElsewhere = drain.VolumeState{AttachedElsewhere: true}
)

func withParallelSequences(o drain.Facts) drain.Facts {
	o.Settings.Parallel = true
	return o
}

// factsAfterDeparture returns the facts after these pods left the node.
func factsAfterDeparture(o drain.Facts, volumes volumesByName, departed ...drain.DepartedPod) drain.Facts {
	o.Volumes, o.DepartedPods = volumes, departed
	return o
}

// departedPod returns a pod with volumes that left the node at epoch minus ago.
func departedPod(name string, ago time.Duration, names ...string) drain.DepartedPod {
	return drain.NewDepartedPod(newPod(name, withVolumes(names...), withDeletionTime(epochPlus(-ago))), epochPlus(-ago))
}

func withFreedVolumes(d drain.DepartedPod, ago time.Duration) drain.DepartedPod {
	d.Free = epochPlus(-ago)
	return d
}

func TestPodsWithVolumesAreEvictedOneAfterTheOther(t *testing.T) {
	o := newFacts(
		newPod("c", withVolumes("pv-c")),
		newPod("b", withVolumes("pv-b"), withPriority(10)),
		newPod("a", withVolumes("pv-a")),
	)
	d := drain.Decide(o)
	assert.Equal(t, []string{"b"}, requestedPodNames(d), "the highest priority first")
	assert.Equal(t, map[string]string{"a": "Waiting", "b": "Evicting", "c": "Waiting"}, rowStates(d))

	o.Pods[1] = changedPod(o.Pods[1], withRequestAnswer(drain.RequestAnswer{Result: drain.ResultAccepted}, 0))
	assert.Empty(t, drain.Decide(o).Act, "it goes")
	o.Pods[1] = changedPod(o.Pods[1], withDeletionTime(epochPlus(time.Second)))
	assert.Empty(t, drain.Decide(o).Act, "it terminates")
	o.Pods = []drain.Pod{o.Pods[0], o.Pods[2]}
	assert.Equal(t, []string{"a"}, requestedPodNames(drain.Decide(o)), "then by name")
	o.Pods[0].DeletedAt = epochPlus(time.Second)
	assert.Empty(t, drain.Decide(o).Act, "somebody else deleted one")
	assert.Equal(
		t,
		[]string{"a"},
		requestedPodNames(drain.Decide(withMeans(drain.MeansDelete, o))),
		"deletion waits for none",
	)
}

func TestARemovalSequenceWaitsForVolumesOfDepartedPods(t *testing.T) {
	next := newPod("b", withVolumes("pv-b"))
	for _, row := range []struct {
		name    string
		volumes volumesByName
		left    drain.DepartedPod
		waits   string // substring of the lane's cause; empty: the next pod is evicted
		look    time.Time
		free    time.Time
	}{
		{"still attached here", volumesByName{"pv-a": volumeAttachedHere}, departedPod("a", 20*time.Second, "pv-a"), "Detaching", epochPlus(10 * time.Second), time.Time{}},
		{"here and elsewhere", volumesByName{"pv-a": {AttachedHere: true, AttachedElsewhere: true}}, departedPod("a", 20*time.Second, "pv-a"), "Detaching", epochPlus(10 * time.Second), time.Time{}},
		{"here for too long", volumesByName{"pv-a": volumeAttachedHere}, departedPod("a", 2*time.Minute, "pv-a"), "", time.Time{}, time.Time{}},
		{"detached now", volumesByName{}, departedPod("a", 2*time.Minute, "pv-a"), "Attaching", epochPlus(30 * time.Second), epoch},
		{"detached before", volumesByName{}, withFreedVolumes(departedPod("a", time.Minute, "pv-a"), 40*time.Second), "Attaching", epochPlus(50 * time.Second), epochPlus(-40 * time.Second)},
		{"elsewhere", volumesByName{"pv-a": volumeAttachedElsewhere}, withFreedVolumes(departedPod("a", time.Minute, "pv-a"), 40*time.Second), "", time.Time{}, time.Time{}},
		{"at once", volumesByName{"pv-a": volumeAttachedElsewhere}, departedPod("a", 0, "pv-a"), "", time.Time{}, time.Time{}},
		{"nowhere for too long", volumesByName{}, withFreedVolumes(departedPod("a", 3*time.Minute, "pv-a"), 90*time.Second), "", time.Time{}, time.Time{}},
		{"one of two is here", volumesByName{"pv-a": volumeAttachedElsewhere, "pv-z": volumeAttachedHere}, departedPod("a", 20*time.Second, "pv-a", "pv-z"), "Detaching", epochPlus(10 * time.Second), time.Time{}},
		{"one of two is nowhere", volumesByName{"pv-a": volumeAttachedElsewhere}, departedPod("a", 20*time.Second, "pv-a", "pv-z"), "Attaching", epochPlus(30 * time.Second), epoch},
		{"both are elsewhere", volumesByName{"pv-a": volumeAttachedElsewhere, "pv-z": volumeAttachedElsewhere}, departedPod("a", 20*time.Second, "pv-a", "pv-z"), "", time.Time{}, time.Time{}},
		{"a pod without volumes", volumesByName{"pv-b": volumeAttachedHere}, departedPod("a", 0), "", time.Time{}, time.Time{}},
		{"it had finished by itself", volumesByName{"pv-a": volumeAttachedHere}, drain.NewDepartedPod(newPod("a", withVolumes("pv-a"), asFinishedPod), epoch), "", time.Time{}, time.Time{}},
		{"it finished because it was asked to go", volumesByName{"pv-a": volumeAttachedHere}, drain.NewDepartedPod(newPod("a", withVolumes("pv-a"), asFinishedPod, withDeletionTime(epoch)), epoch), "Detaching", epochPlus(30 * time.Second), time.Time{}},
		{"a pod of a DaemonSet", volumesByName{"pv-a": volumeAttachedHere}, drain.NewDepartedPod(newPod("a", withVolumes("pv-a"), asDaemonSetPod), epoch), "", time.Time{}, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := drain.Decide(factsAfterDeparture(newFacts(next, newPod("c", withVolumes("pv-c"))), row.volumes, row.left))
			if row.waits == "" {
				assert.Equal(t, []string{"b"}, requestedPodNames(d))
				assert.Empty(t, d.Departed)
				return
			}
			assert.Empty(t, d.Act)
			assert.Equal(t, row.waits, rowStates(d)["a"])
			assert.Equal(t, row.look, d.Look)
			row.left.Free = row.free
			assert.Equal(t, []drain.DepartedPod{row.left}, d.Departed)

			alone := drain.Decide(factsAfterDeparture(newFacts(), row.volumes, d.Departed...))
			assert.False(t, alone.Done, "the last one's volumes are waited for, too")
			assert.Equal(t, row.look, alone.Look)
		})
	}
}

// A volume that is moved within seconds is no blocker, and only the Overview shows the volume.
func TestASlowVolumeIsABlocker(t *testing.T) {
	queued := newFacts(newPod("b", withVolumes("pv-b")), newPod("c", withVolumes("pv-c")), newPod("d"))
	isHere := "volume pv-a of shop/a is still attached to the node"
	isNowhere := "volume pv-a of shop/a is not attached to another node yet"
	for name, row := range map[string]struct {
		seen    drain.Facts
		volumes volumesByName
		left    drain.DepartedPod
		want    []drain.Blocker
		says    string
	}{
		"attached for a short time": {queued, volumesByName{"pv-a": volumeAttachedHere}, departedPod("a", 30*time.Second-1, "pv-a"), nil, isHere},
		"attached for long": {
			queued,
			volumesByName{"pv-a": volumeAttachedHere},
			departedPod("a", 30*time.Second, "pv-a"),
			[]drain.Blocker{{Kind: "Volume", Name: "pv-a", Pods: 2, Until: epochPlus(90 * time.Second), Why: isHere}},
			isHere,
		},
		"the last pod has left": {
			newFacts(),
			volumesByName{"pv-a": volumeAttachedHere},
			departedPod("a", 30*time.Second, "pv-a"),
			[]drain.Blocker{{Kind: "Volume", Name: "pv-a", Until: epochPlus(90 * time.Second), Why: isHere}},
			isHere,
		},
		"the last pod has just left":    {newFacts(), volumesByName{"pv-a": volumeAttachedHere}, departedPod("a", time.Second, "pv-a"), nil, isHere},
		"detached after a long time":    {queued, nil, departedPod("a", time.Minute, "pv-a"), nil, isNowhere},
		"attached nowhere for a moment": {queued, nil, withFreedVolumes(departedPod("a", time.Minute, "pv-a"), 30*time.Second-1), nil, isNowhere},
		"attached nowhere for long": {
			queued, nil, withFreedVolumes(departedPod("a", time.Minute, "pv-a"), 30*time.Second),
			[]drain.Blocker{{Kind: "Volume", Name: "pv-a", Pods: 2, Until: epochPlus(time.Minute), Why: isNowhere}},
			isNowhere,
		},
		"its time is over": {queued, volumesByName{"pv-a": volumeAttachedHere}, departedPod("a", 2*time.Minute, "pv-a"), nil, "left: "},
	} {
		t.Run(name, func(t *testing.T) {
			d := drain.Decide(factsAfterDeparture(row.seen, row.volumes, row.left))
			assert.Equal(t, row.want, d.Blockers)
			assert.Contains(t, d.Picture.Why, row.says)
		})
	}
}

func TestOverviewShowsTheAwaitedVolume(t *testing.T) {
	o := factsAfterDeparture(
		newFacts(newPod("b", withVolumes("pv-b")), newPod("c", withVolumes("pv-c")), newPod("d")),
		volumesByName{"pv-a": volumeAttachedHere},
		departedPod("a", 0, "pv-a"),
	)
	d := drain.Decide(o)
	assert.Equal(t, []string{"d"}, requestedPodNames(d))
	assert.Equal(t, drain.PodRow{Pod: "shop/b", State: "Waiting", BlockedBy: "pv-a"}, rowOfPod(d, "b"))
	assert.Equal(
		t,
		drain.PodRow{Pod: "shop/a", State: "Detaching", Since: epoch, BlockedBy: "pv-a", Next: epochPlus(2 * time.Minute)},
		rowOfPod(d, "a"),
	)

	o.Volumes = nil
	d = drain.Decide(o)
	assert.Equal(
		t,
		drain.PodRow{Pod: "shop/a", State: "Attaching", Since: epoch, BlockedBy: "pv-a", Next: epochPlus(90 * time.Second)},
		rowOfPod(d, "a"),
	)
}

func TestARemovalSequenceReportsItsLongestAwaitedVolume(t *testing.T) {
	both := volumesByName{"pv-1": volumeAttachedHere, "pv-2": volumeAttachedHere}
	d := drain.Decide(
		factsAfterDeparture(
			newFacts(newPod("b", withVolumes("pv-b"))),
			both,
			departedPod("early", time.Minute, "pv-2"),
			departedPod("late", time.Second, "pv-1"),
		),
	)
	assert.Equal(t, "pv-2", rowOfPod(d, "b").BlockedBy)
	for _, names := range [][]string{{"pv-1", "pv-2"}, {"pv-2", "pv-1"}} { // both volumes are detached at epoch
		d := drain.Decide(
			factsAfterDeparture(
				newFacts(newPod("b", withVolumes("pv-b"))),
				nil,
				departedPod("early", time.Minute, names[0]),
				departedPod("late", time.Second, names[1]),
			),
		)
		assert.Equal(t, "pv-1", rowOfPod(d, "b").BlockedBy)
	}
}

func TestWithoutTimeoutsADrainDoesNotWaitForVolumes(t *testing.T) {
	for _, volumes := range []volumesByName{{"pv-a": volumeAttachedHere}, {}} {
		o := factsAfterDeparture(
			newFacts(newPod("b", func(p *drain.Pod) { p.Volumes = []string{"pv-b"} })),
			volumes,
			departedPod("a", 0, "pv-a"),
		)
		o.Settings = drain.Settings{}
		assert.Equal(t, []string{"b"}, requestedPodNames(drain.Decide(o)))
	}
}

func TestARemovalSequenceDoesNotWaitForASharedVolume(t *testing.T) {
	shared := volumesByName{"pv-s": volumeAttachedHere, "pv-a": volumeAttachedElsewhere}
	o := factsAfterDeparture(
		newFacts(newPod("b", withVolumes("pv-s")), newPod("c", withVolumes("pv-c"))),
		shared,
		departedPod("a", 0, "pv-a", "pv-s"),
	)
	assert.Equal(t, []string{"b"}, requestedPodNames(drain.Decide(o)))
	o.Volumes = volumesByName{"pv-s": volumeAttachedHere, "pv-a": volumeAttachedHere}
	assert.Empty(t, drain.Decide(o).Act, "the other volume is")
	o = factsAfterDeparture(
		newFacts(newPod("agent", withVolumes("pv-s"), asDaemonSetPod), newPod("c", withVolumes("pv-c"))),
		shared,
		departedPod("a", 0, "pv-s"),
	)
	assert.Equal(t, []string{"c"}, requestedPodNames(drain.Decide(o)), "a pod that stays uses it, too")
	o = factsAfterDeparture(
		newFacts(newPod("done", withVolumes("pv-s"), asFinishedPod), newPod("c", withVolumes("pv-c"))),
		shared,
		departedPod("a", 0, "pv-s"),
	)
	assert.Equal(t, []string{"done"}, requestedPodNames(drain.Decide(o)), "one that finished does not")
	o = factsAfterDeparture(newFacts(newPod("c", withVolumes("pv-c"))), shared, departedPod("b", 0, "pv-s"))
	assert.Empty(t, drain.Decide(o).Act, "when the last of them left, it is waited for")
}

func TestIndependentRemovalSequencesAreEvictedInParallel(t *testing.T) {
	set := func(name string) func(*drain.Pod) { return func(p *drain.Pod) { p.StatefulSet = name } }
	for _, row := range []struct {
		name string
		pods []drain.Pod
		want []string
	}{
		{"nothing in common", []drain.Pod{newPod("a", withVolumes("1")), newPod("b", withVolumes("2"))}, []string{"a", "b"}},
		{"a StatefulSet", []drain.Pod{newPod("a", withVolumes("1"), set("shop/db")), newPod("b", withVolumes("2"), set("shop/db"))}, []string{"a"}},
		{"two StatefulSets", []drain.Pod{newPod("a", withVolumes("1"), set("shop/db")), newPod("b", withVolumes("2"), set("shop/mq"))}, []string{"a", "b"}},
		{"a budget", []drain.Pod{newPod("a", withVolumes("1"), withBudgets("shop/web")), newPod("b", withVolumes("2"), withBudgets("shop/web"))}, []string{"a"}},
		{"a volume", []drain.Pod{newPod("a", withVolumes("1", "2")), newPod("b", withVolumes("2", "3"))}, []string{"a"}},
		{"by way of a third", []drain.Pod{newPod("a", withVolumes("1")), newPod("b", withVolumes("2")), newPod("c", withVolumes("1", "2"))}, []string{"a"}},
		{"by way of one that terminates", []drain.Pod{newPod("a", withVolumes("1")), newPod("b", withVolumes("2")), newPod("c", withVolumes("1"), withDeletionTime(epoch))}, []string{"b"}},
		{"a budget is no volume", []drain.Pod{newPod("a", withVolumes("shop/web")), newPod("b", withVolumes("2"), withBudgets("shop/web"))}, []string{"a", "b"}},
		{"the finished hold none", []drain.Pod{newPod("a", withVolumes("1")), newPod("b", withVolumes("1"), asFinishedPod)}, []string{"b", "a"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := withParallelSequences(withKnownBudgets(newFacts(row.pods...), webBudget(5, 9, 3, 9)))
			assert.Equal(t, row.want, requestedPodNames(drain.Decide(o)))
			if len(row.pods) == 2 && !row.pods[1].Finished {
				o.Settings.Parallel = false
				assert.Equal(t, row.want[:1], requestedPodNames(drain.Decide(o)), "without it all share one lane")
			}
		})
	}
}

func TestOnlyTheRemovalSequenceOfTheVolumeWaits(t *testing.T) {
	o := withParallelSequences(
		factsAfterDeparture(
			newFacts(
				newPod("b", withVolumes("pv-a", "pv-b")),
				newPod("c", withVolumes("pv-c")),
				newPod("d", withVolumes("pv-d"), withBudgets("shop/web")),
			),
			volumesByName{"pv-z": volumeAttachedHere},
			departedPod("a", 30*time.Second, "pv-b", "pv-z"),
			withFreedVolumes(
				drain.NewDepartedPod(newPod("y", withVolumes("pv-y"), withBudgets("shop/web")), epochPlus(-40*time.Second)),
				40*time.Second,
			),
		),
	)
	d := drain.Decide(o)
	assert.Equal(t, []string{"c"}, requestedPodNames(d))
	assert.Equal(t, []drain.Blocker{
		{
			Kind:  "Volume",
			Name:  "pv-y",
			Pods:  1,
			Until: epochPlus(50 * time.Second),
			Why:   "volume pv-y of shop/y is not attached to another node yet",
		},
		{
			Kind:  "Volume",
			Name:  "pv-z",
			Pods:  1,
			Until: epochPlus(90 * time.Second),
			Why:   "volume pv-z of shop/a is still attached to the node",
		},
	}, d.Blockers)
}

func TestABlockedPodDoesNotDelayItsRemovalSequence(t *testing.T) {
	for _, row := range []struct {
		name  string
		first func(*drain.Pod)
		want  []string
	}{
		{"by a budget", withBudgets("shop/web"), []string{"b"}},
		{"by several", withBudgets("shop/db", "shop/web"), []string{"b"}},
		{"by protection", withProtection("true"), []string{"b"}},
		{"by an error", withRequestAnswer(drain.RequestAnswer{Result: drain.ResultFailed}, 0), []string{"b"}},
		{"by its namespace", withRequestAnswer(drain.RequestAnswer{Result: drain.ResultNamespaceDeleting}, 0), []string{"b"}},
		{"the API server is busy", withRequestAnswer(drain.RequestAnswer{Result: drain.ResultThrottled}, 0), nil},
		{"it was, and now a budget blocks", func(p *drain.Pod) {
			*p = changedPod(*p, withRequestAnswer(drain.RequestAnswer{Result: drain.ResultThrottled}, time.Hour), withBudgets("shop/web"))
		}, []string{"b"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := withKnownBudgets(
				newFacts(
					newPod("a", withVolumes("1"), row.first),
					newPod("b", withVolumes("2")),
					newPod("c", withVolumes("3")),
				),
				withProbeAtEpoch(webBudget(0, 1, 1, 3)),
			)
			assert.Equal(t, row.want, requestedPodNames(drain.Decide(o)))
		})
	}
}

func TestARemovalSequenceSendsOneProbe(t *testing.T) {
	o := withKnownBudgets(
		newFacts(
			newPod("a", withVolumes("1"), withBudgets("shop/web")),
			newPod("b", withVolumes("2"), withBudgets("shop/web")),
			newPod("c", withVolumes("3")),
		),
		webBudget(0, 1, 1, 3),
	)
	d := drain.Decide(o)
	assert.Equal(t, []string{"a as a probe of shop/web"}, requestedPodNames(d))
	assert.Equal(t, map[string]string{"a": "Blocked", "b": "Blocked", "c": "Waiting"}, rowStates(d))

	o.Budgets[0].DisruptionsAllowed = 1
	d = drain.Decide(o)
	assert.Equal(t, []string{"a"}, requestedPodNames(d))
	assert.Equal(
		t,
		map[string]string{"a": "Evicting", "b": "Waiting", "c": "Waiting"},
		rowStates(d),
		"it waits for a first of all",
	)
}

func TestPodsWithoutVolumesDoNotWaitForRemovalSequences(t *testing.T) {
	o := newFacts(newPod("a", withVolumes("1")), newPod("b", withVolumes("2")), newPod("c"), newPod("d"))
	assert.Equal(t, []string{"a", "c", "d"}, requestedPodNames(drain.Decide(o)))
	o.Pods[0].DeletedAt = epochPlus(time.Second)
	assert.Equal(t, []string{"c", "d"}, requestedPodNames(drain.Decide(o)))
}

// Temporal limits the size of inputs, results and heartbeats. Inputs, results and heartbeats contain
// Decision.Departed.
func TestDepartedPodsHaveLimitedSize(t *testing.T) {
	o := newFacts()
	o.Settings.Parallel = true
	o.Volumes = map[string]drain.VolumeState{}
	for i := range 500 {
		name := fmt.Sprintf("%s-%03d", strings.Repeat("n", 249), i)
		p := newPod(
			name,
			withVolumes("volume-"+name),
			withRequestAnswer(
				drain.RequestAnswer{Result: drain.ResultFailed, Message: strings.Repeat("because ", 1000)},
				time.Minute,
			),
		)
		o.Volumes[p.Volumes[0]] = drain.VolumeState{AttachedHere: true}
		o.DepartedPods = append(o.DepartedPods, drain.NewDepartedPod(p, epochPlus(-time.Duration(i)*time.Millisecond)))
	}
	left := drain.Decide(o).Departed
	text, err := json.Marshal(left)
	require.NoError(t, err)
	assert.Less(t, len(text), 128<<10)
	assert.Greater(t, len(left), 60)
	assert.Contains(t, left[0].Pod.Name, "-499", "the first to leave")

	o.DepartedPods = o.DepartedPods[:1]
	assert.Len(t, drain.Decide(o).Departed, 1)
}
