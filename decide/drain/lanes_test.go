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

type attached = map[string]drain.Volume

var (
	here      = drain.Volume{Here: true}
	elsewhere = drain.Volume{Elsewhere: true}
)

func parallel(o drain.Observed) drain.Observed {
	o.Settings.Parallel = true
	return o
}

// after returns the facts after these pods have left.
func after(o drain.Observed, volumes attached, departed ...drain.Departed) drain.Observed {
	o.Volumes, o.Departed = volumes, departed
	return o
}

// left returns a pod with volumes that left the node this long ago.
func left(name string, ago time.Duration, names ...string) drain.Departed {
	return drain.Leave(pod(name, volumes(names...), terminating(at(-ago))), at(-ago))
}

func freed(d drain.Departed, ago time.Duration) drain.Departed {
	d.Free = at(-ago)
	return d
}

func TestPodsWithVolumesGoOneAfterTheOther(t *testing.T) {
	o := seen(pod("c", volumes("pv-c")), pod("b", volumes("pv-b"), priority(10)), pod("a", volumes("pv-a")))
	d := drain.Decide(o)
	assert.Equal(t, []string{"b"}, sent(d), "the highest priority first")
	assert.Equal(t, map[string]string{"a": "Waiting", "b": "Evicting", "c": "Waiting"}, states(d))

	o.Pods[1] = with(o.Pods[1], answered(drain.Answer{Result: drain.Accepted}, 0))
	assert.Empty(t, drain.Decide(o).Act, "it goes")
	o.Pods[1] = with(o.Pods[1], terminating(at(time.Second)))
	assert.Empty(t, drain.Decide(o).Act, "it terminates")
	o.Pods = []drain.Pod{o.Pods[0], o.Pods[2]}
	assert.Equal(t, []string{"a"}, sent(drain.Decide(o)), "then by name")
	o.Pods[0].DeletedAt = at(time.Second)
	assert.Empty(t, drain.Decide(o).Act, "somebody else deleted one")
	assert.Equal(t, []string{"a"}, sent(drain.Decide(by(drain.Delete, o))), "deletion waits for none")
}

func TestALaneWaitsForItsVolumes(t *testing.T) {
	next := pod("b", volumes("pv-b"))
	for _, row := range []struct {
		name    string
		volumes attached
		left    drain.Departed
		waits   string // empty: the next one goes
		look    time.Time
		free    time.Time
	}{
		{"still attached here", attached{"pv-a": here}, left("a", 20*time.Second, "pv-a"), "Detaching", at(10 * time.Second), time.Time{}},
		{"here and elsewhere", attached{"pv-a": {Here: true, Elsewhere: true}}, left("a", 20*time.Second, "pv-a"), "Detaching", at(10 * time.Second), time.Time{}},
		{"here for too long", attached{"pv-a": here}, left("a", 2*time.Minute, "pv-a"), "", time.Time{}, time.Time{}},
		{"detached now", attached{}, left("a", 2*time.Minute, "pv-a"), "Attaching", at(30 * time.Second), epoch},
		{"detached before", attached{}, freed(left("a", time.Minute, "pv-a"), 40*time.Second), "Attaching", at(50 * time.Second), at(-40 * time.Second)},
		{"elsewhere", attached{"pv-a": elsewhere}, freed(left("a", time.Minute, "pv-a"), 40*time.Second), "", time.Time{}, time.Time{}},
		{"at once", attached{"pv-a": elsewhere}, left("a", 0, "pv-a"), "", time.Time{}, time.Time{}},
		{"nowhere for too long", attached{}, freed(left("a", 3*time.Minute, "pv-a"), 90*time.Second), "", time.Time{}, time.Time{}},
		{"one of two is here", attached{"pv-a": elsewhere, "pv-z": here}, left("a", 20*time.Second, "pv-a", "pv-z"), "Detaching", at(10 * time.Second), time.Time{}},
		{"one of two is nowhere", attached{"pv-a": elsewhere}, left("a", 20*time.Second, "pv-a", "pv-z"), "Attaching", at(30 * time.Second), epoch},
		{"both are elsewhere", attached{"pv-a": elsewhere, "pv-z": elsewhere}, left("a", 20*time.Second, "pv-a", "pv-z"), "", time.Time{}, time.Time{}},
		{"a pod without volumes", attached{"pv-b": here}, left("a", 0), "", time.Time{}, time.Time{}},
		{"it had finished by itself", attached{"pv-a": here}, drain.Leave(pod("a", volumes("pv-a"), finished), epoch), "", time.Time{}, time.Time{}},
		{"it finished because it was asked to go", attached{"pv-a": here}, drain.Leave(pod("a", volumes("pv-a"), finished, terminating(epoch)), epoch), "Detaching", at(30 * time.Second), time.Time{}},
		{"a pod of a DaemonSet", attached{"pv-a": here}, drain.Leave(pod("a", volumes("pv-a"), daemonSet), epoch), "", time.Time{}, time.Time{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := drain.Decide(after(seen(next, pod("c", volumes("pv-c"))), row.volumes, row.left))
			if row.waits == "" {
				assert.Equal(t, []string{"b"}, sent(d))
				assert.Empty(t, d.Departed)
				return
			}
			assert.Empty(t, d.Act)
			assert.Equal(t, row.waits, states(d)["a"])
			assert.Equal(t, row.look, d.Look)
			row.left.Free = row.free
			assert.Equal(t, []drain.Departed{row.left}, d.Departed)

			alone := drain.Decide(after(seen(), row.volumes, d.Departed...))
			assert.False(t, alone.Done, "the last one's volumes are waited for, too")
			assert.Equal(t, row.look, alone.Look)
		})
	}
}

// A volume that is moved in seconds blocks nothing: the picture alone shows it.
func TestASlowVolumeIsABlocker(t *testing.T) {
	queued := seen(pod("b", volumes("pv-b")), pod("c", volumes("pv-c")), pod("d"))
	isHere := "volume pv-a of shop/a is still attached to the node"
	isNowhere := "volume pv-a of shop/a is not attached to another node yet"
	for name, row := range map[string]struct {
		seen    drain.Observed
		volumes attached
		left    drain.Departed
		want    []drain.Blocker
		says    string
	}{
		"attached for a short time": {queued, attached{"pv-a": here}, left("a", 30*time.Second-1, "pv-a"), nil, isHere},
		"attached for long": {
			queued,
			attached{"pv-a": here},
			left("a", 30*time.Second, "pv-a"),
			[]drain.Blocker{{Kind: "Volume", Name: "pv-a", Pods: 2, Until: at(90 * time.Second), Why: isHere}},
			isHere,
		},
		"the last pod has left": {
			seen(),
			attached{"pv-a": here},
			left("a", 30*time.Second, "pv-a"),
			[]drain.Blocker{{Kind: "Volume", Name: "pv-a", Until: at(90 * time.Second), Why: isHere}},
			isHere,
		},
		"the last pod has just left":    {seen(), attached{"pv-a": here}, left("a", time.Second, "pv-a"), nil, isHere},
		"detached after a long time":    {queued, nil, left("a", time.Minute, "pv-a"), nil, isNowhere},
		"attached nowhere for a moment": {queued, nil, freed(left("a", time.Minute, "pv-a"), 30*time.Second-1), nil, isNowhere},
		"attached nowhere for long": {
			queued, nil, freed(left("a", time.Minute, "pv-a"), 30*time.Second),
			[]drain.Blocker{{Kind: "Volume", Name: "pv-a", Pods: 2, Until: at(time.Minute), Why: isNowhere}},
			isNowhere,
		},
		"its time is over": {queued, attached{"pv-a": here}, left("a", 2*time.Minute, "pv-a"), nil, "left: "},
	} {
		t.Run(name, func(t *testing.T) {
			d := drain.Decide(after(row.seen, row.volumes, row.left))
			assert.Equal(t, row.want, d.Blockers)
			assert.Contains(t, d.Picture.Why, row.says)
		})
	}
}

func TestAPictureShowsTheVolumeThatIsWaitedFor(t *testing.T) {
	o := after(
		seen(pod("b", volumes("pv-b")), pod("c", volumes("pv-c")), pod("d")),
		attached{"pv-a": here},
		left("a", 0, "pv-a"),
	)
	d := drain.Decide(o)
	assert.Equal(t, []string{"d"}, sent(d))
	assert.Equal(t, drain.Row{Pod: "shop/b", State: "Waiting", BlockedBy: "pv-a"}, row(d, "b"))
	assert.Equal(
		t,
		drain.Row{Pod: "shop/a", State: "Detaching", Since: epoch, BlockedBy: "pv-a", Next: at(2 * time.Minute)},
		row(d, "a"),
	)

	o.Volumes = nil
	d = drain.Decide(o)
	assert.Equal(
		t,
		drain.Row{Pod: "shop/a", State: "Attaching", Since: epoch, BlockedBy: "pv-a", Next: at(90 * time.Second)},
		row(d, "a"),
	)
}

func TestALaneNamesTheVolumeThatItHasWaitedForLongest(t *testing.T) {
	both := attached{"pv-1": here, "pv-2": here}
	d := drain.Decide(
		after(seen(pod("b", volumes("pv-b"))), both, left("early", time.Minute, "pv-2"), left("late", time.Second, "pv-1")),
	)
	assert.Equal(t, "pv-2", row(d, "b").BlockedBy)
	for _, names := range [][]string{{"pv-1", "pv-2"}, {"pv-2", "pv-1"}} { // both were detached now
		d := drain.Decide(
			after(
				seen(pod("b", volumes("pv-b"))),
				nil,
				left("early", time.Minute, names[0]),
				left("late", time.Second, names[1]),
			),
		)
		assert.Equal(t, "pv-1", row(d, "b").BlockedBy)
	}
}

func TestWaitingForVolumesCanBeSwitchedOff(t *testing.T) {
	for _, volumes := range []attached{{"pv-a": here}, {}} {
		o := after(seen(pod("b", func(p *drain.Pod) { p.Volumes = []string{"pv-b"} })), volumes, left("a", 0, "pv-a"))
		o.Settings = drain.Settings{}
		assert.Equal(t, []string{"b"}, sent(drain.Decide(o)))
	}
}

func TestAVolumeThatOthersStillUseIsNotWaitedFor(t *testing.T) {
	shared := attached{"pv-s": here, "pv-a": elsewhere}
	o := after(seen(pod("b", volumes("pv-s")), pod("c", volumes("pv-c"))), shared, left("a", 0, "pv-a", "pv-s"))
	assert.Equal(t, []string{"b"}, sent(drain.Decide(o)))
	o.Volumes = attached{"pv-s": here, "pv-a": here}
	assert.Empty(t, drain.Decide(o).Act, "the other volume is")
	o = after(seen(pod("agent", volumes("pv-s"), daemonSet), pod("c", volumes("pv-c"))), shared, left("a", 0, "pv-s"))
	assert.Equal(t, []string{"c"}, sent(drain.Decide(o)), "a pod that stays uses it, too")
	o = after(seen(pod("done", volumes("pv-s"), finished), pod("c", volumes("pv-c"))), shared, left("a", 0, "pv-s"))
	assert.Equal(t, []string{"done"}, sent(drain.Decide(o)), "one that finished does not")
	o = after(seen(pod("c", volumes("pv-c"))), shared, left("b", 0, "pv-s"))
	assert.Empty(t, drain.Decide(o).Act, "when the last of them left, it is waited for")
}

func TestLanesThatShareNothingGoAtTheSameTime(t *testing.T) {
	set := func(name string) func(*drain.Pod) { return func(p *drain.Pod) { p.StatefulSet = name } }
	for _, row := range []struct {
		name string
		pods []drain.Pod
		want []string
	}{
		{"nothing in common", []drain.Pod{pod("a", volumes("1")), pod("b", volumes("2"))}, []string{"a", "b"}},
		{"a StatefulSet", []drain.Pod{pod("a", volumes("1"), set("shop/db")), pod("b", volumes("2"), set("shop/db"))}, []string{"a"}},
		{"two StatefulSets", []drain.Pod{pod("a", volumes("1"), set("shop/db")), pod("b", volumes("2"), set("shop/mq"))}, []string{"a", "b"}},
		{"a budget", []drain.Pod{pod("a", volumes("1"), budgets("shop/web")), pod("b", volumes("2"), budgets("shop/web"))}, []string{"a"}},
		{"a volume", []drain.Pod{pod("a", volumes("1", "2")), pod("b", volumes("2", "3"))}, []string{"a"}},
		{"by way of a third", []drain.Pod{pod("a", volumes("1")), pod("b", volumes("2")), pod("c", volumes("1", "2"))}, []string{"a"}},
		{"by way of one that terminates", []drain.Pod{pod("a", volumes("1")), pod("b", volumes("2")), pod("c", volumes("1"), terminating(epoch))}, []string{"b"}},
		{"a budget is no volume", []drain.Pod{pod("a", volumes("shop/web")), pod("b", volumes("2"), budgets("shop/web"))}, []string{"a", "b"}},
		{"the finished hold none", []drain.Pod{pod("a", volumes("1")), pod("b", volumes("1"), finished)}, []string{"b", "a"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := parallel(knowing(seen(row.pods...), web(5, 9, 3, 9)))
			assert.Equal(t, row.want, sent(drain.Decide(o)))
			if len(row.pods) == 2 && !row.pods[1].Finished {
				o.Settings.Parallel = false
				assert.Equal(t, row.want[:1], sent(drain.Decide(o)), "without it all share one lane")
			}
		})
	}
}

func TestOnlyTheLaneOfTheVolumeWaits(t *testing.T) {
	o := parallel(
		after(
			seen(pod("b", volumes("pv-a", "pv-b")), pod("c", volumes("pv-c")), pod("d", volumes("pv-d"), budgets("shop/web"))),
			attached{"pv-z": here},
			left("a", 30*time.Second, "pv-b", "pv-z"),
			freed(drain.Leave(pod("y", volumes("pv-y"), budgets("shop/web")), at(-40*time.Second)), 40*time.Second),
		),
	)
	d := drain.Decide(o)
	assert.Equal(t, []string{"c"}, sent(d))
	assert.Equal(t, []drain.Blocker{
		{
			Kind:  "Volume",
			Name:  "pv-y",
			Pods:  1,
			Until: at(50 * time.Second),
			Why:   "volume pv-y of shop/y is not attached to another node yet",
		},
		{
			Kind:  "Volume",
			Name:  "pv-z",
			Pods:  1,
			Until: at(90 * time.Second),
			Why:   "volume pv-z of shop/a is still attached to the node",
		},
	}, d.Blockers)
}

func TestABlockedPodDoesNotHoldItsLane(t *testing.T) {
	for _, row := range []struct {
		name  string
		first func(*drain.Pod)
		want  []string
	}{
		{"by a budget", budgets("shop/web"), []string{"b"}},
		{"by several", budgets("shop/db", "shop/web"), []string{"b"}},
		{"by protection", protected("true"), []string{"b"}},
		{"by an error", answered(drain.Answer{Result: drain.Failed}, 0), []string{"b"}},
		{"by its namespace", answered(drain.Answer{Result: drain.Going}, 0), []string{"b"}},
		{"the API server is busy", answered(drain.Answer{Result: drain.Throttled}, 0), nil},
		{"it was, and now a budget blocks", func(p *drain.Pod) {
			*p = with(*p, answered(drain.Answer{Result: drain.Throttled}, time.Hour), budgets("shop/web"))
		}, []string{"b"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := knowing(
				seen(pod("a", volumes("1"), row.first), pod("b", volumes("2")), pod("c", volumes("3"))),
				tried(web(0, 1, 1, 3)),
			)
			assert.Equal(t, row.want, sent(drain.Decide(o)))
		})
	}
}

func TestALaneHasOneProbeAndSaysWhatBlocksTheOthers(t *testing.T) {
	o := knowing(
		seen(
			pod("a", volumes("1"), budgets("shop/web")),
			pod("b", volumes("2"), budgets("shop/web")),
			pod("c", volumes("3")),
		),
		web(0, 1, 1, 3),
	)
	d := drain.Decide(o)
	assert.Equal(t, []string{"a as a probe of shop/web"}, sent(d))
	assert.Equal(t, map[string]string{"a": "Blocked", "b": "Blocked", "c": "Waiting"}, states(d))

	o.Budgets[0].Allowed = 1
	d = drain.Decide(o)
	assert.Equal(t, []string{"a"}, sent(d))
	assert.Equal(
		t,
		map[string]string{"a": "Evicting", "b": "Waiting", "c": "Waiting"},
		states(d),
		"it waits for a first of all",
	)
}

func TestPodsWithoutVolumesDoNotWaitForThoseWith(t *testing.T) {
	o := seen(pod("a", volumes("1")), pod("b", volumes("2")), pod("c"), pod("d"))
	assert.Equal(t, []string{"a", "c", "d"}, sent(drain.Decide(o)))
	o.Pods[0].DeletedAt = at(time.Second)
	assert.Equal(t, []string{"c", "d"}, sent(drain.Decide(o)))
}

// What a decision hands to the next one is in inputs, results and heartbeats, which Temporal bounds.
func TestDepartedPodsFitIntoAHistory(t *testing.T) {
	o := seen()
	o.Settings.Parallel = true
	o.Volumes = map[string]drain.Volume{}
	for i := range 500 {
		name := fmt.Sprintf("%s-%03d", strings.Repeat("n", 249), i)
		p := pod(
			name,
			volumes("volume-"+name),
			answered(drain.Answer{Result: drain.Failed, Message: strings.Repeat("because ", 1000)}, time.Minute),
		)
		o.Volumes[p.Volumes[0]] = drain.Volume{Here: true}
		o.Departed = append(o.Departed, drain.Leave(p, at(-time.Duration(i)*time.Millisecond)))
	}
	left := drain.Decide(o).Departed
	text, err := json.Marshal(left)
	require.NoError(t, err)
	assert.Less(t, len(text), 128<<10)
	assert.Greater(t, len(left), 60)
	assert.Contains(t, left[0].Pod.Name, "-499", "the first to leave")

	o.Departed = o.Departed[:1]
	assert.Len(t, drain.Decide(o).Departed, 1)
}
