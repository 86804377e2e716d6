// Package decide_test asks every decision that takes lists about a fleet: 10,000 machines, pods or instances at once.
// The benchmark says how long each takes; docs/scale.md has the figures. The test counts the statements that each
// executes, so that a decision whose work grows with the square of its list fails on any machine, however slow.
package decide_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/api/vocabulary"
	"millwright/decide/attention"
	"millwright/decide/drain"
	"millwright/decide/explain"
	"millwright/decide/health"
	"millwright/decide/orphan"
	"millwright/decide/replace"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/decide/takeover"
)

// fleet is how many members a list of the benchmark has.
const fleet = 10_000

// question is one decision. ask returns a function that decides about n members; it makes the facts before.
type question struct {
	name string
	ask  func(n int) func()
}

func questions() []question {
	return []question{
		{"scale/calm", aboutSet(func(int, *scale.Member) {}, func(*scale.Observed) {})},
		{"scale/all are new", aboutSet(func(_ int, m *scale.Member) { newborn(m) }, func(*scale.Observed) {})},
		{"scale/none exists", aboutSet(nil, func(o *scale.Observed) { o.Members = nil })},
		{
			"scale/all are surplus",
			aboutSet(func(int, *scale.Member) {}, func(o *scale.Observed) { o.Replicas, o.Order = 0, scale.Random }),
		},
		{"scale/all failed before they joined", aboutSet(func(_ int, m *scale.Member) {
			newborn(m)
			m.Phase, m.MCM.Failed, m.MCM.Replace, m.MCM.Troubled = "Failed", true, true, true
		}, backedOff)},
		{"scale/all are marked unhealthy", aboutSet(func(_ int, m *scale.Member) {
			m.Marked, m.Healthy, m.Node = true, scale.False, scale.NodeUnhealthy
		}, func(o *scale.Observed) { o.Remediation.Limited, o.Remediation.MaxInFlight = true, 1 })},
		{"scale/all marks wait", aboutSet(func(_ int, m *scale.Member) {
			newborn(m)
			m.Marked, m.Healthy = true, scale.False
		}, backedOff)},
		{"scale/each says something else", aboutSet(func(i int, m *scale.Member) {
			m.Ready = scale.False
			m.ReadyWhy = fmt.Sprint("reason ", i)
			m.UpToDate = scale.False
			m.UpToDateWhy = fmt.Sprint("* difference ", i)
			m.Drift = "labels"
		}, func(*scale.Observed) {})},
		{"scale/orphans", aboutSet(func(int, *scale.Member) {}, func(o *scale.Observed) {
			for _, m := range o.Members {
				o.Orphans = append(o.Orphans, scale.Orphan{Name: m.Name, UID: m.UID, Version: m.Version, Matches: true})
			}
			o.Members = nil
		})},
		{"scale/of a deployment of Cluster API", func(n int) func() {
			o := set(n, func(i int, m *scale.Member) { m.UpToDate, m.UpToDateWhy = scale.False, fmt.Sprint("* difference ", i) })
			return func() {
				scale.OfDeployment(o.Now, o.Replicas, o.Deletion, scale.DeploymentMachines{Members: o.Members})
			}
		}},
		{"rollout/calm", aboutRollout(1, nil)},
		{"rollout/in the middle", aboutRollout(2, nil)},
		{"rollout/a hundred sets", aboutRollout(100, nil)},
		{"rollout/in place", aboutRollout(2, func(o *rollout.Observed) { o.Strategy = rollout.InPlaceAuto })},
		{"rollout/the autoscaler names all", aboutRollout(1, func(o *rollout.Observed) {
			var entries []string
			for i, m := range o.Sets[0].Machines {
				entries = append(entries, m.Name+"~2026-01-01T00:00:00Z", fmt.Sprintf("gone-%d~2026-01-01T00:00:00Z", i))
			}
			o.MCM.Trigger = strings.Join(entries, ",")
		})},
		{"rollout/all new machines failed", aboutRollout(2, func(o *rollout.Observed) {
			o.Automatic = rollout.AutoRollback{Failed: true, MaxFailed: o.Replicas}
			o.Progress.Revision = 2
			for i := range o.Sets[1].Machines {
				m := &o.Sets[1].Machines[i]
				m.Ready, m.Available, m.Unhealthy, m.Failed, m.MCM.Troubled = false, false, true, true, true
				if i%2 == 0 {
					o.Progress.Failed = append(o.Progress.Failed, m.Name)
				}
			}
		})},
		{
			"rollout/conditions of Cluster API",
			aboutRollout(2, func(o *rollout.Observed) {
				o.ClusterAPI.Machines = &scale.DeploymentMachines{Members: set(o.Replicas, func(int, *scale.Member) {}).Members}
			}),
		},
		{"replace/all are due", aboutReplacement(func(*replace.Observed) {})},
		{
			"replace/all are granted",
			aboutReplacement(func(o *replace.Observed) { grant(o, func(m replace.Machine) string { return m.UID }) }),
		},
		{"replace/granted ones are gone", aboutReplacement(func(o *replace.Observed) {
			grant(o, func(m replace.Machine) string { return "former " + m.UID })
			for i := range o.Machines {
				o.Machines[i].Due, o.Machines[i].Joined, o.Machines[i].Created = false, false, now()
			}
		})},
		{"replace/breaker", aboutReplacement(func(o *replace.Observed) {
			for range o.Machines {
				o.Nodes.Unjudged = append(o.Nodes.Unjudged, replace.Node{
					Conditions: conditions(),
					Bad:        []string{"KernelDeadlock", "ReadonlyFilesystem", "DiskPressure"},
					Recovered:  now().Add(-time.Second),
				})
			}
		})},
		{"drain/pods", aboutDrain(false, nil)},
		{"drain/pods with volumes", aboutDrain(true, nil)},
		{
			"drain/pods that are blocked",
			aboutDrain(false, func(i int, p *drain.Pod) { p.Budgets = []string{fmt.Sprint("shop/budget-", i)} }),
		},
		{"drain/pods that left", func(n int) func() {
			o := node(n, true, nil)
			for _, p := range o.Pods {
				o.Departed = append(o.Departed, drain.Leave(p, o.Now))
			}
			o.Pods = nil
			return func() { drain.Decide(o) }
		}},
		{"drain/turns", func(n int) func() {
			var turns []drain.Turn
			for i := range n {
				turns = append(
					turns,
					drain.Turn{
						UID:       name(i),
						Namespace: "shop",
						Name:      name(i),
						Group:     fmt.Sprint("group ", i%100),
						DeletedAt: now(),
						Queued:    true,
					},
				)
			}
			return func() { drain.DecideTurn(turns, name(n-1), 10); drain.NextTurns(turns, 10) }
		}},
		{"orphan/calm", aboutSweep(func(*orphan.Facts) {})},
		{"orphan/all are orphans", aboutSweep(func(f *orphan.Facts) {
			f.Machines, f.Allowed = f.Machines[:1], "25 until "+now().Add(time.Hour).Format(time.RFC3339)
			for _, i := range f.Instances {
				f.Sightings = append(
					f.Sightings,
					orphan.Sighting{ProviderID: i.ProviderID, UID: i.UID, Since: now().Add(-24 * time.Hour)},
				)
			}
		})},
		{"orphan/all have no name", aboutSweep(func(f *orphan.Facts) {
			for i := range f.Instances {
				f.Instances[i].Machine, f.Instances[i].UID = "", ""
			}
		})},
		{"orphan/last check of a target", func(n int) func() {
			f := sweep(n)
			return func() {
				orphan.Claimed(orphan.Target{Machine: "gone", UID: "gone", ProviderIDs: []string{"i-1", "i-2"}}, f.Machines)
			}
		}},
		{"explain/all wait for one thing", aboutWaits(func(int) string { return "shop/web" })},
		{"explain/each waits for something else", aboutWaits(func(i int) string { return fmt.Sprint("shop/web-", i) })},
		{"takeover/all are wanted otherwise", func(n int) func() {
			f := takeover.Facts{Now: now(), Namespace: "shop"}
			for i := range n {
				f.Machines = append(
					f.Machines,
					takeover.Machine{
						Name:       name(i),
						Node:       name(i),
						ProviderID: name(i),
						Need:       attention.Sync,
						Why:        fmt.Sprint("label ", i),
					},
				)
				f.Sets = append(f.Sets, takeover.Set{Name: name(i), Creates: 1, Why: fmt.Sprint("create ", i)})
				f.Deployments = append(f.Deployments, takeover.Deployment{Name: name(i), Rolling: true})
				f.Classes = append(
					f.Classes,
					takeover.Class{Name: name(i), Exists: true, Provider: fmt.Sprint("cloud-", i), Machines: 1},
				)
			}
			return func() { takeover.Plan(f) }
		}},
	}
}

// newborn is a machine whose node has not joined.
func newborn(m *scale.Member) {
	m.Phase = "Pending"
	m.Joined = false
	m.Node = scale.NoNode
	m.Ready = scale.False
	m.ReadyFrom = time.Time{}
	m.UpToDate = ""
	m.Created = now().Add(-time.Second)
}

// backedOff is a set whose last generations failed, and that waits before it deletes the next one.
func backedOff(o *scale.Observed) {
	o.Remediation.Backoff, o.MCM.Generations = time.Hour, scale.Generations{Failed: 3, Last: now().Add(-2 * time.Second)}
}

func now() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// name is that of a machine, in no order, as random names are.
func name(i int) string { return fmt.Sprintf("pool-7dcbd-%05d", i*7919%100_003) }

func set(n int, change func(int, *scale.Member)) scale.Observed {
	o := scale.Observed{
		Now:      now(),
		Naming:   []string{"pool-7dcbd-", ""},
		Settings: scale.Settings{Replicas: n},
		Deletion: scale.Deletion{Finalizer: true},
	}
	for i := range n {
		m := scale.Member{
			Name:     name(i),
			UID:      "uid-" + name(i),
			Version:  "7",
			Created:  now().Add(-time.Duration(i) * time.Minute),
			Matches:  true,
			MCM:      scale.MCMMember{Labelled: true},
			Template: scale.Template{UpToDate: scale.True},
			Phase:    "Running",
			Joined:   true,
			Node:     scale.NodeHealthy,
			Readiness: scale.Readiness{
				Ready:     scale.True,
				ReadyFrom: now().Add(-time.Duration(i) * time.Minute),
			},
			Priority: 3,
		}
		if change != nil {
			change(i, &m)
		}
		o.Members = append(o.Members, m)
	}
	return o
}

func aboutSet(member func(int, *scale.Member), change func(*scale.Observed)) func(int) func() {
	return func(n int) func() {
		o := set(n, member)
		change(&o)
		return func() { scale.Plan(o) }
	}
}

// aboutRollout divides the machines among sets, of which the last one is the current one.
func aboutRollout(sets int, change func(*rollout.Observed)) func(int) func() {
	return func(n int) func() {
		o := rollout.Observed{
			Now: now(), Settings: rollout.Settings{
				Replicas:     n,
				Strategy:     rollout.RollingUpdate,
				HistoryLimit: new(3),
				Surge:        rollout.Bound{Value: 10, Percent: true},
				Unavailable:  rollout.Bound{Value: 10, Percent: true},
			}, Deletion: scale.Deletion{Finalizer: true}, MCM: rollout.MCMDeployment{Guard: true},
		}
		for s := range sets {
			each := rollout.Set{
				Name: fmt.Sprint(
					"set-",
					s,
				),
				UID:      fmt.Sprint("uid-set-", s),
				Version:  "5",
				Created:  now().Add(time.Duration(s-sets) * time.Hour),
				Deletion: scale.Deletion{Finalizer: true},
				Replicas: n / sets,
				ActedOn:  n / sets,
				Revision: int64(s + 1),
				Current:  s == sets-1,
				Desired:  n,
				Max:      n,
			}
			for i := range n / sets {
				id := name(s*(n/sets) + i)
				each.Machines = append(each.Machines, rollout.Member{
					Name:    id,
					UID:     "uid-" + id,
					Version: "7",
					Created: now(),
					MCM: rollout.MCMMember{
						Node:    id,
						Tainted: s < sets-1,
					},
					Ready:     true,
					Available: true,
					Priority:  3,
				})
			}
			o.Sets = append(o.Sets, each)
		}
		if change != nil {
			change(&o)
		}
		return func() { rollout.Plan(o) }
	}
}

func aboutReplacement(change func(*replace.Observed)) func(int) func() {
	return func(n int) func() {
		o := replace.Observed{
			Now:    now(),
			Budget: rollout.Bound{Value: 100, Percent: true},
			Nodes:  replace.Nodes{Joined: 3 * n, Dead: 1},
		}
		for i := range n {
			o.Machines = append(o.Machines, replace.Machine{
				Name:     name(i),
				UID:      "uid-" + name(i),
				Domain:   fmt.Sprint("zone ", i%3),
				Joined:   true,
				Created:  now().Add(-time.Hour),
				Due:      true,
				DueSince: now().Add(-time.Duration(i) * time.Second),
				Reason:   "HealthTimeout",
			})
		}
		change(&o)
		return func() { replace.Decide(o) }
	}
}

// grant adds as many grants as a deployment may have.
func grant(o *replace.Observed, uid func(replace.Machine) string) {
	for _, m := range o.Machines[:min(len(o.Machines), replace.MaxGrants)] {
		o.Grants = append(
			o.Grants,
			replace.Grant{UID: uid(m), Name: m.Name, Domain: m.Domain, Reason: m.Reason, At: now().Add(-time.Minute)},
		)
	}
}

func conditions() []health.Condition {
	return []health.Condition{
		{
			Type:   "Ready",
			Status: vocabulary.StatusTrue,
		},
		{Type: "MemoryPressure", Status: vocabulary.StatusFalse},
		{Type: "DiskPressure", Status: vocabulary.StatusFalse},
	}
}

// node is one with n pods, each with a volume of its own if volumes.
func node(n int, volumes bool, change func(int, *drain.Pod)) drain.Observed {
	o := drain.Observed{
		Now: now(), Means: drain.Evict, Volumes: map[string]drain.Volume{},
		Settings: drain.Settings{Attach: 90 * time.Second, Detach: 2 * time.Minute, Parallel: true},
	}
	for i := range n {
		p := drain.Pod{
			UID:       name(i),
			Namespace: fmt.Sprint("namespace-", i%10),
			Name:      name(i),
			Grace:     time.Minute,
			Started:   now().Add(-time.Hour),
			Ready:     true,
		}
		if volumes {
			p.Volumes, p.Budgets = []string{"volume-" + name(i)}, []string{"shop/web"}
			o.Volumes[p.Volumes[0]] = drain.Volume{Here: true}
		}
		if change != nil {
			change(i, &p)
		}
		for _, key := range p.Budgets {
			if i == 0 || key != "shop/web" {
				o.Budgets = append(o.Budgets, drain.Budget{Key: key})
			}
		}
		o.Pods = append(o.Pods, p)
	}
	return o
}

func aboutDrain(volumes bool, change func(int, *drain.Pod)) func(int) func() {
	return func(n int) func() {
		o := node(n, volumes, change)
		return func() { drain.Decide(o) }
	}
}

func sweep(n int) orphan.Facts {
	f := orphan.Facts{Now: now()}
	for i := range n {
		f.Machines = append(f.Machines, orphan.Machine{Name: name(i), UID: "uid-" + name(i), ProviderID: "i-" + name(i)})
		f.Instances = append(
			f.Instances,
			orphan.Instance{
				ProviderID: "i-" + name(i),
				Machine:    name(i),
				UID:        "uid-" + name(i),
				Created:    now().Add(-24 * time.Hour),
			},
		)
	}
	return f
}

func aboutSweep(change func(*orphan.Facts)) func(int) func() {
	return func(n int) func() {
		f := sweep(n)
		change(&f)
		return func() { orphan.Decide(f) }
	}
}

// aboutWaits asks for the summary of a set and of its deployment, all of whose machines are being drained.
func aboutWaits(blocker func(int) string) func(int) func() {
	return func(n int) func() {
		var machines []explain.Machine
		for i := range n {
			machines = append(machines, explain.Machine{
				Namespace: "shop",
				Name:      name(i),
				Node:      name(i),
				Class:     "small",
				Deleting:  true,
				Step:      vocabulary.StepDrain,
				Cause:     "PodDisruptionBudget " + blocker(i) + " allows none of its pods to go",
				BlockedBy: []string{"pdb/" + blocker(i)},
				Since:     now().Add(-time.Duration(i) * time.Second),
				Deadline:  now().Add(time.Hour),
				Means:     drain.Evict,
				Then:      drain.Delete,
				Now:       now(),
			})
		}
		set := explain.Set{Namespace: "shop", Name: "pool-7dcbd", Class: "small", Machines: machines, Of: n}
		deployment := explain.Deployment{Namespace: "shop", Name: "pool", Machines: machines, Of: n}
		return func() { set.Blocked(now()); deployment.Blocked(now()) }
	}
}

func BenchmarkFleet(b *testing.B) {
	for _, q := range questions() {
		b.Run(q.name, func(b *testing.B) {
			decide := q.ask(fleet)
			runtime.GC()
			b.ReportAllocs()
			before := processor(b)
			for b.Loop() {
				decide()
			}
			b.ReportMetric((processor(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// processor returns the processor time of this process, which a busy machine does not make longer. It has the garbage
// collector's.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// one is the variable with which TestDecisionsGrowWithTheirLists starts this test binary again: a question and a number
// of members.
const one = "DECIDE_ONE"

// TestOneDecision decides once, for TestDecisionsGrowWithTheirLists.
func TestOneDecision(t *testing.T) {
	name, size, asked := strings.Cut(os.Getenv(one), "=")
	if !asked {
		return // it has nothing to check by itself
	}
	n, err := strconv.Atoi(size)
	require.NoError(t, err)
	for _, q := range questions() {
		if q.name == name {
			q.ask(n)()
		}
	}
}

// A list that is ten times as long costs ten times the statements, or fourteen where it is sorted; the square would be
// a hundred. Loops of the package slices count as well.
func TestDecisionsGrowWithTheirLists(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds this package anew, with counters, and runs it for each decision")
	}
	t.Parallel()
	const few, many, most = 1000, 10_000, 20
	binary := filepath.Join(t.TempDir(), "decide.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-covermode=count", "-coverpkg=millwright/decide/...,slices", "-o", binary, ".").
		CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, q := range questions() {
		t.Run(q.name, func(t *testing.T) {
			t.Parallel()
			less, more := statements(t, binary, q.name, few), statements(t, binary, q.name, many)
			assert.LessOrEqual(t, more, most*less, "statements for %d and for %d members", many, few)
			t.Logf(
				"%d blocks of statements for %d members, %d for %d: %.1f times as many",
				less,
				few,
				more,
				many,
				float64(more)/float64(less),
			)
		})
	}
}

// statements returns how many blocks of statements a decision executes, with what makes its facts.
func statements(t *testing.T, binary, question string, n int) (sum int) {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	command := exec.CommandContext(t.Context(), binary, "-test.run", "^TestOneDecision$", "-test.coverprofile", profile)
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%s=%d", one, question, n))
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	file, err := os.Open(profile)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); { // file:from,to statements count
		fields := strings.Fields(lines.Text())
		count, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			continue // its first line
		}
		sum += count
	}
	require.Positive(t, sum)
	return sum
}
