// Package decide_test calls every decision function that takes a list with 10,000 machines, pods or instances. The
// benchmark measures the time of each decision; docs/scale.md has the results. The test counts the executed statements
// of each decision. A decision with quadratic cost fails the test on any host, however slow.
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

// fleetSize is the number of items in each list of the benchmark.
const fleetSize = 10_000

// decisionCase is one decision. prepare creates the facts about n members, and returns a function that makes the
// decision.
type decisionCase struct {
	name    string
	prepare func(n int) func()
}

func decisionCases() []decisionCase {
	return []decisionCase{
		{"scale/calm", prepareSetDecision(func(int, *scale.Member) {}, func(*scale.Facts) {})},
		{
			"scale/all are new",
			prepareSetDecision(func(_ int, m *scale.Member) { asJoiningMachine(m) }, func(*scale.Facts) {}),
		},
		{"scale/none exists", prepareSetDecision(nil, func(o *scale.Facts) { o.Members = nil })},
		{
			"scale/all are surplus",
			prepareSetDecision(
				func(int, *scale.Member) {},
				func(o *scale.Facts) { o.Replicas, o.DeletionOrder = 0, scale.RandomOrder },
			),
		},
		{"scale/all failed before they joined", prepareSetDecision(func(_ int, m *scale.Member) {
			asJoiningMachine(m)
			m.Phase, m.MCM.Failed, m.MCM.Replaceable, m.MCM.LastOperationFailed = "Failed", true, true, true
		}, withGenerationBackOff)},
		{"scale/all are marked unhealthy", prepareSetDecision(func(_ int, m *scale.Member) {
			m.Marked, m.Healthy, m.NodeState = true, scale.ConditionFalse, scale.NodeUnhealthy
		}, func(o *scale.Facts) { o.Remediation.HasMaxInFlight, o.Remediation.MaxInFlight = true, 1 })},
		{"scale/all marks wait", prepareSetDecision(func(_ int, m *scale.Member) {
			asJoiningMachine(m)
			m.Marked, m.Healthy = true, scale.ConditionFalse
		}, withGenerationBackOff)},
		{"scale/each says something else", prepareSetDecision(func(i int, m *scale.Member) {
			m.Ready = scale.ConditionFalse
			m.NotReadyReason = fmt.Sprint("reason ", i)
			m.UpToDate = scale.ConditionFalse
			m.OutdatedReason = fmt.Sprint("* difference ", i)
			m.Drift = "labels"
		}, func(*scale.Facts) {})},
		{"scale/orphans", prepareSetDecision(func(int, *scale.Member) {}, func(o *scale.Facts) {
			for _, m := range o.Members {
				o.Orphans = append(o.Orphans, scale.Orphan{Name: m.Name, UID: m.UID, Version: m.Version, MatchesSelector: true})
			}
			o.Members = nil
		})},
		{"scale/of a deployment of Cluster API", func(n int) func() {
			o := newScaleFacts(
				n,
				func(i int, m *scale.Member) {
					m.UpToDate, m.OutdatedReason = scale.ConditionFalse, fmt.Sprint("* difference ", i)
				},
			)
			return func() {
				scale.DeploymentConditions(o.Now, o.Replicas, o.Deletion, scale.DeploymentMachines{Members: o.Members})
			}
		}},
		{"rollout/calm", prepareRolloutDecision(1, nil)},
		{"rollout/in the middle", prepareRolloutDecision(2, nil)},
		{"rollout/a hundred sets", prepareRolloutDecision(100, nil)},
		{"rollout/in place", prepareRolloutDecision(2, func(o *rollout.Facts) { o.Strategy = rollout.InPlaceAuto })},
		{"rollout/the autoscaler names all", prepareRolloutDecision(1, func(o *rollout.Facts) {
			var entries []string
			for i, m := range o.Sets[0].Machines {
				entries = append(entries, m.Name+"~2026-01-01T00:00:00Z", fmt.Sprintf("gone-%d~2026-01-01T00:00:00Z", i))
			}
			o.MCM.TriggerAnnotation = strings.Join(entries, ",")
		})},
		{"rollout/all new machines failed", prepareRolloutDecision(2, func(o *rollout.Facts) {
			o.RollbackPolicy = rollout.AutoRollback{HasMaxFailed: true, MaxFailed: o.Replicas}
			o.Progress.Revision = 2
			for i := range o.Sets[1].Machines {
				m := &o.Sets[1].Machines[i]
				m.Ready, m.Available, m.Unhealthy, m.Failed, m.MCM.LastOperationFailed = false, false, true, true, true
				if i%2 == 0 {
					o.Progress.Failed = append(o.Progress.Failed, m.Name)
				}
			}
		})},
		{
			"rollout/conditions of Cluster API",
			prepareRolloutDecision(2, func(o *rollout.Facts) {
				o.ClusterAPI.Machines = &scale.DeploymentMachines{
					Members: newScaleFacts(o.Replicas, func(int, *scale.Member) {}).Members,
				}
			}),
		},
		{"replace/all are due", prepareReplacementDecision(func(*replace.Facts) {})},
		{
			"replace/all are granted",
			prepareReplacementDecision(
				func(o *replace.Facts) { addMaxGrants(o, func(m replace.Machine) string { return m.UID }) },
			),
		},
		{"replace/granted ones are gone", prepareReplacementDecision(func(o *replace.Facts) {
			addMaxGrants(o, func(m replace.Machine) string { return "former " + m.UID })
			for i := range o.Machines {
				o.Machines[i].Due, o.Machines[i].Joined, o.Machines[i].CreatedAt = false, false, now()
			}
		})},
		{"replace/breaker", prepareReplacementDecision(func(o *replace.Facts) {
			for range o.Machines {
				o.NodeCounts.UncheckedNodes = append(o.NodeCounts.UncheckedNodes, replace.Node{
					Conditions:              nodeConditions(),
					UnhealthyConditionTypes: []string{"KernelDeadlock", "ReadonlyFilesystem", "DiskPressure"},
					RecoveredAt:             now().Add(-time.Second),
				})
			}
		})},
		{"drain/pods", prepareDrainDecision(false, nil)},
		{"drain/pods with volumes", prepareDrainDecision(true, nil)},
		{
			"drain/pods that are blocked",
			prepareDrainDecision(false, func(i int, p *drain.Pod) { p.Budgets = []string{fmt.Sprint("shop/budget-", i)} }),
		},
		{"drain/pods that left", func(n int) func() {
			o := newDrainFacts(n, true, nil)
			for _, p := range o.Pods {
				o.DepartedPods = append(o.DepartedPods, drain.NewDepartedPod(p, o.Now))
			}
			o.Pods = nil
			return func() { drain.Decide(o) }
		}},
		{"drain/turns", func(n int) func() {
			var turns []drain.QueueEntry
			for i := range n {
				turns = append(
					turns,
					drain.QueueEntry{
						UID:       machineName(i),
						Namespace: "shop",
						Name:      machineName(i),
						Group:     fmt.Sprint("group ", i%100),
						DeletedAt: now(),
						Queued:    true,
					},
				)
			}
			return func() { drain.MayDrainNow(turns, machineName(n-1), 10); drain.NextQueuedMachines(turns, 10) }
		}},
		{"orphan/calm", prepareSweepDecision(func(*orphan.Facts) {})},
		{"orphan/all are orphans", prepareSweepDecision(func(f *orphan.Facts) {
			f.Machines, f.AllowedDeletionsText = f.Machines[:1], "25 until "+now().Add(time.Hour).Format(time.RFC3339)
			for _, i := range f.Instances {
				f.Sightings = append(
					f.Sightings,
					orphan.Sighting{ProviderID: i.ProviderID, UID: i.MachineUID, Since: now().Add(-24 * time.Hour)},
				)
			}
		})},
		{"orphan/all have no name", prepareSweepDecision(func(f *orphan.Facts) {
			for i := range f.Instances {
				f.Instances[i].MachineName, f.Instances[i].MachineUID = "", ""
			}
		})},
		{"orphan/last check of a target", func(n int) func() {
			f := newSweepFacts(n)
			return func() {
				orphan.ClaimReason(
					orphan.DeletionTarget{Machine: "gone", UID: "gone", ProviderIDs: []string{"i-1", "i-2"}},
					f.Machines,
				)
			}
		}},
		{"explain/all wait for one thing", prepareSummary(func(int) string { return "shop/web" })},
		{"explain/each waits for something else", prepareSummary(func(i int) string { return fmt.Sprint("shop/web-", i) })},
		{"takeover/all are wanted otherwise", func(n int) func() {
			f := takeover.Facts{Now: now(), Namespace: "shop"}
			for i := range n {
				f.Machines = append(
					f.Machines,
					takeover.Machine{
						Name:       machineName(i),
						NodeName:   machineName(i),
						ProviderID: machineName(i),
						Need:       attention.NeedNodeSync,
						NeedReason: fmt.Sprint("label ", i),
					},
				)
				f.Sets = append(
					f.Sets,
					takeover.MachineSet{Name: machineName(i), CreationCount: 1, NextAction: fmt.Sprint("create ", i)},
				)
				f.Deployments = append(f.Deployments, takeover.Deployment{Name: machineName(i), Rolling: true})
				f.Classes = append(
					f.Classes,
					takeover.Class{Name: machineName(i), Exists: true, Provider: fmt.Sprint("cloud-", i), MachineCount: 1},
				)
			}
			return func() { takeover.PlanSteps(f) }
		}},
	}
}

// asJoiningMachine makes a machine whose node has not joined.
func asJoiningMachine(m *scale.Member) {
	m.Phase = "Pending"
	m.Joined = false
	m.NodeState = scale.NoNode
	m.Ready = scale.ConditionFalse
	m.ReadySince = time.Time{}
	m.UpToDate = ""
	m.CreatedAt = now().Add(-time.Second)
}

// withGenerationBackOff makes a set whose last generations failed, and which waits before it deletes the next machine.
func withGenerationBackOff(o *scale.Facts) {
	o.Remediation.Backoff, o.Generations = time.Hour, scale.GenerationRecord{
		Failed: 3,
		Last:   now().Add(-2 * time.Second),
	}
}

func now() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// machineName returns the name of machine i. The names are in random order.
func machineName(i int) string { return fmt.Sprintf("pool-7dcbd-%05d", i*7919%100_003) }

func newScaleFacts(n int, change func(int, *scale.Member)) scale.Facts {
	o := scale.Facts{
		Now:       now(),
		NameParts: []string{"pool-7dcbd-", ""},
		Settings:  scale.Settings{Replicas: n},
		Deletion:  scale.Deletion{HasFinalizer: true},
	}
	for i := range n {
		m := scale.Member{
			Name:                machineName(i),
			UID:                 "uid-" + machineName(i),
			Version:             "7",
			CreatedAt:           now().Add(-time.Duration(i) * time.Minute),
			MatchesSelector:     true,
			MCM:                 scale.MCMMember{Labelled: true},
			TemplateDifferences: scale.TemplateDifferences{UpToDate: scale.ConditionTrue},
			Phase:               "Running",
			Joined:              true,
			NodeState:           scale.NodeHealthy,
			Readiness: scale.Readiness{
				Ready:      scale.ConditionTrue,
				ReadySince: now().Add(-time.Duration(i) * time.Minute),
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

func prepareSetDecision(member func(int, *scale.Member), change func(*scale.Facts)) func(int) func() {
	return func(n int) func() {
		o := newScaleFacts(n, member)
		change(&o)
		return func() { scale.PlanSet(o) }
	}
}

// prepareRolloutDecision distributes the machines evenly among the sets. The last set is the current set.
func prepareRolloutDecision(sets int, change func(*rollout.Facts)) func(int) func() {
	return func(n int) func() {
		o := rollout.Facts{
			Now: now(), Settings: rollout.Settings{
				Replicas:       n,
				Strategy:       rollout.RollingUpdate,
				HistoryLimit:   new(3),
				MaxSurge:       rollout.IntOrPercent{Value: 10, IsPercent: true},
				MaxUnavailable: rollout.IntOrPercent{Value: 10, IsPercent: true},
			}, Deletion: scale.Deletion{HasFinalizer: true}, MCM: rollout.MCMDeployment{ProtectsNodesFromAutoscaler: true},
		}
		for s := range sets {
			each := rollout.MachineSet{
				Name: fmt.Sprint(
					"set-",
					s,
				),
				UID:              fmt.Sprint("uid-set-", s),
				Version:          "5",
				CreatedAt:        now().Add(time.Duration(s-sets) * time.Hour),
				Deletion:         scale.Deletion{HasFinalizer: true},
				Replicas:         n / sets,
				ObservedReplicas: n / sets,
				Revision:         int64(s + 1),
				Current:          s == sets-1,
				DesiredReplicas:  n,
				MaxReplicas:      n,
			}
			for i := range n / sets {
				id := machineName(s*(n/sets) + i)
				each.Machines = append(each.Machines, rollout.Member{
					Name:      id,
					UID:       "uid-" + id,
					Version:   "7",
					CreatedAt: now(),
					MCM: rollout.MCMMember{
						NodeName:    id,
						NodeTainted: s < sets-1,
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
		return func() { rollout.PlanDeployment(o) }
	}
}

func prepareReplacementDecision(change func(*replace.Facts)) func(int) func() {
	return func(n int) func() {
		o := replace.Facts{
			Now:        now(),
			Budget:     rollout.IntOrPercent{Value: 100, IsPercent: true},
			NodeCounts: replace.NodeCounts{Joined: 3 * n, Dead: 1},
		}
		for i := range n {
			o.Machines = append(o.Machines, replace.Machine{
				Name:      machineName(i),
				UID:       "uid-" + machineName(i),
				Domain:    fmt.Sprint("zone ", i%3),
				Joined:    true,
				CreatedAt: now().Add(-time.Hour),
				Due:       true,
				DueSince:  now().Add(-time.Duration(i) * time.Second),
				Reason:    "HealthTimeout",
			})
		}
		change(&o)
		return func() { replace.Decide(o) }
	}
}

// addMaxGrants adds as many grants as a deployment may have.
func addMaxGrants(o *replace.Facts, uid func(replace.Machine) string) {
	for _, m := range o.Machines[:min(len(o.Machines), replace.MaxGrants)] {
		o.Grants = append(
			o.Grants,
			replace.ReplacementGrant{
				MachineUID:  uid(m),
				MachineName: m.Name,
				Domain:      m.Domain,
				Reason:      m.Reason,
				GrantedAt:   now().Add(-time.Minute),
			},
		)
	}
}

func nodeConditions() []health.Condition {
	return []health.Condition{
		{
			Type:   "Ready",
			Status: vocabulary.StatusTrue,
		},
		{Type: "MemoryPressure", Status: vocabulary.StatusFalse},
		{Type: "DiskPressure", Status: vocabulary.StatusFalse},
	}
}

// newDrainFacts returns a node with n pods. If volumes is true, each pod has its own volume.
func newDrainFacts(n int, volumes bool, change func(int, *drain.Pod)) drain.Facts {
	o := drain.Facts{
		Now: now(), Means: drain.MeansEvict, Volumes: map[string]drain.VolumeState{},
		Settings: drain.Settings{Attach: 90 * time.Second, Detach: 2 * time.Minute, Parallel: true},
	}
	for i := range n {
		p := drain.Pod{
			UID:       machineName(i),
			Namespace: fmt.Sprint("namespace-", i%10),
			Name:      machineName(i),
			Grace:     time.Minute,
			Started:   now().Add(-time.Hour),
			Ready:     true,
		}
		if volumes {
			p.Volumes, p.Budgets = []string{"volume-" + machineName(i)}, []string{"shop/web"}
			o.Volumes[p.Volumes[0]] = drain.VolumeState{AttachedHere: true}
		}
		if change != nil {
			change(i, &p)
		}
		for _, key := range p.Budgets {
			if i == 0 || key != "shop/web" {
				o.Budgets = append(o.Budgets, drain.DisruptionBudget{Key: key})
			}
		}
		o.Pods = append(o.Pods, p)
	}
	return o
}

func prepareDrainDecision(volumes bool, change func(int, *drain.Pod)) func(int) func() {
	return func(n int) func() {
		o := newDrainFacts(n, volumes, change)
		return func() { drain.Decide(o) }
	}
}

func newSweepFacts(n int) orphan.Facts {
	f := orphan.Facts{Now: now()}
	for i := range n {
		f.Machines = append(
			f.Machines,
			orphan.Machine{Name: machineName(i), UID: "uid-" + machineName(i), ProviderID: "i-" + machineName(i)},
		)
		f.Instances = append(
			f.Instances,
			orphan.Instance{
				ProviderID:  "i-" + machineName(i),
				MachineName: machineName(i),
				MachineUID:  "uid-" + machineName(i),
				Created:     now().Add(-24 * time.Hour),
			},
		)
	}
	return f
}

func prepareSweepDecision(change func(*orphan.Facts)) func(int) func() {
	return func(n int) func() {
		f := newSweepFacts(n)
		change(&f)
		return func() { orphan.Decide(f) }
	}
}

// prepareSummary summarizes what blocks a set and its deployment. All machines of the set are being drained.
func prepareSummary(blocker func(int) string) func(int) func() {
	return func(n int) func() {
		var machines []explain.Machine
		for i := range n {
			machines = append(machines, explain.Machine{
				Namespace: "shop",
				Name:      machineName(i),
				NodeName:  machineName(i),
				ClassName: "small",
				Deleting:  true,
				Step:      vocabulary.StepDrain,
				Cause:     "PodDisruptionBudget " + blocker(i) + " allows none of its pods to go",
				BlockedBy: []string{"pdb/" + blocker(i)},
				Since:     now().Add(-time.Duration(i) * time.Second),
				Deadline:  now().Add(time.Hour),
				Means:     drain.MeansEvict,
				NextMeans: drain.MeansDelete,
				Now:       now(),
			})
		}
		set := explain.MachineSet{
			Namespace:    "shop",
			Name:         "pool-7dcbd",
			ClassName:    "small",
			Machines:     machines,
			MachineCount: n,
		}
		deployment := explain.Deployment{Namespace: "shop", Name: "pool", Machines: machines, MachineCount: n}
		return func() { set.BlockedSummary(now()); deployment.BlockedSummary(now()) }
	}
}

func BenchmarkFleet(b *testing.B) {
	for _, q := range decisionCases() {
		b.Run(q.name, func(b *testing.B) {
			decide := q.prepare(fleetSize)
			runtime.GC()
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				decide()
			}
			b.ReportMetric((cpuTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpuTime returns the CPU time of this process, including the garbage collector's. Other load on the host does not
// change the CPU time.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// singleDecisionEnv is an environment variable. TestDecisionCostIsNotQuadratic sets singleDecisionEnv, and starts this
// test binary again for one decision. The value is the name of the decision and a number of members.
const singleDecisionEnv = "DECIDE_ONE"

// TestSingleDecisionForStatementCount makes one decision, for TestDecisionCostIsNotQuadratic.
func TestSingleDecisionForStatementCount(t *testing.T) {
	name, size, asked := strings.Cut(os.Getenv(singleDecisionEnv), "=")
	if !asked {
		return // without the environment variable there is nothing to check
	}
	n, err := strconv.Atoi(size)
	require.NoError(t, err)
	for _, q := range decisionCases() {
		if q.name == name {
			q.prepare(n)()
		}
	}
}

// If a list is 10 times as long, a decision may execute 10 times as many statements, or 14 times as many if it sorts
// the list. A quadratic algorithm executes 100 times as many. The test also counts the loops of package slices.
func TestDecisionCostIsNotQuadratic(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds this package anew, with counters, and runs it for each decision")
	}
	t.Parallel()
	const few, many, most = 1000, 10_000, 20
	binary := filepath.Join(t.TempDir(), "decide.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-covermode=count", "-coverpkg=millwright/decide/...,slices", "-o", binary, ".").
		CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, q := range decisionCases() {
		t.Run(q.name, func(t *testing.T) {
			t.Parallel()
			less, more := countStatements(t, binary, q.name, few), countStatements(t, binary, q.name, many)
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

// countStatements returns how many blocks of statements a decision executes, including the creation of its facts.
func countStatements(t *testing.T, binary, question string, n int) (sum int) {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	command := exec.CommandContext(
		t.Context(),
		binary,
		"-test.run",
		"^TestSingleDecisionForStatementCount$",
		"-test.coverprofile",
		profile,
	)
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%s=%d", singleDecisionEnv, question, n))
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	file, err := os.Open(profile)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); { // line format of a profile: "file:from,to statements count"
		fields := strings.Fields(lines.Text())
		count, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			continue // the first line has no count
		}
		sum += count
	}
	require.Positive(t, sum)
	return sum
}
