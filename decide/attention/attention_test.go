package attention_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/attention"
)

func TestMachine(t *testing.T) {
	running := attention.MachineFacts{
		Finalizer: true, Phase: "Running", ProviderID: "virtual:///eu/i-1", NodeName: "m-1", NodeExists: true, NodeHealthy: true,
	}
	change := func(changes ...func(*attention.MachineFacts)) attention.MachineFacts {
		f := running
		for _, c := range changes {
			c(&f)
		}
		return f
	}
	phase := func(p string) func(*attention.MachineFacts) { return func(f *attention.MachineFacts) { f.Phase = p } }
	sick := func(f *attention.MachineFacts) { f.NodeHealthy, f.NodeWhy = false, "Ready is False (KubeletNotReady)" }
	noNode := func(f *attention.MachineFacts) { f.NodeExists, f.NodeHealthy = false, false }
	deleting := func(f *attention.MachineFacts) { f.Deleting = true }
	released := func(f *attention.MachineFacts) { f.Finalizer = false }
	noInstance := func(f *attention.MachineFacts) { f.ProviderID = "" }

	for _, row := range []struct {
		name  string
		facts attention.MachineFacts
		need  attention.Need
		why   string
	}{
		{"running with a healthy node", running, attention.Nothing, "running"},
		{"new object", attention.MachineFacts{}, attention.Instance, "new: not yet taken care of"},
		{"no instance", change(noInstance, phase("")), attention.Instance, "has no initialised instance yet"},
		{"instance recorded, not initialised", change(phase("")), attention.Instance, "has no initialised instance yet"},
		{"creation keeps failing", change(phase("CrashLoopBackOff")), attention.Instance, "has no initialised instance yet"},
		{"node not registered", change(phase("Pending"), noNode), attention.Node, "instance virtual:///eu/i-1 exists; node m-1 is not registered"},
		{"node not ready", change(phase("Pending"), sick), attention.Node, "instance virtual:///eu/i-1 exists; node m-1: Ready is False (KubeletNotReady)"},
		{"node has joined", change(phase("Pending")), attention.Health, "node m-1 has joined"},
		{"node got sick", change(sick), attention.Health, "node m-1: Ready is False (KubeletNotReady)"},
		{"node went missing", change(noNode), attention.Health, "node m-1 is not registered"},
		{"still sick", change(phase("Unknown"), sick), attention.Nothing, "node m-1: Ready is False (KubeletNotReady)"},
		{"well again", change(phase("Unknown")), attention.Health, "node m-1 is healthy again"},
		{"failed: its set's business", change(phase("Failed"), noNode), attention.Nothing, "phase Failed"},
		{"to be deleted", change(deleting), attention.Deletion, "deletion was asked for"},
		{"to be deleted while it is created", change(deleting, noInstance, phase("")), attention.Deletion, "deletion was asked for"},
		{"U80: deleted without finalizer", change(deleting, released), attention.Nothing, "released: the API server removes it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := attention.Machine(row.facts)
			assert.Equal(t, attention.Decision{Need: row.need, Why: row.why}, d)
			assert.Equal(t, row.need == attention.Nothing, d.Calm())
		})
	}
}

func TestGroups(t *testing.T) {
	counts := attention.Counts{Replicas: 3, FullyLabeled: 3, Ready: 3, Available: 3}
	calm := attention.GroupFacts{
		Finalizer: true, Generation: 2, ObservedGeneration: 2, Wanted: 3, Live: 3, Sets: 1, Actual: counts, Reported: counts,
	}
	change := func(c func(*attention.GroupFacts)) attention.GroupFacts {
		f := calm
		c(&f)
		return f
	}
	for _, row := range []struct {
		name  string
		facts attention.GroupFacts
		need  attention.Need
		why   string
	}{
		{"calm", calm, attention.Nothing, "3 of 3 machines ready"},
		{"calm while one is terminating", change(func(f *attention.GroupFacts) { f.Actual.Replicas, f.Reported.Replicas = 4, 4 }), attention.Nothing, "3 of 3 machines ready"},
		{"no finalizer", change(func(f *attention.GroupFacts) { f.Finalizer = false }), attention.Scale, "new: not yet taken care of"},
		{"spec changed", change(func(f *attention.GroupFacts) { f.Generation = 3 }), attention.Scale, "generation 3 was not seen yet (last seen: 2)"},
		{"too few", change(func(f *attention.GroupFacts) { f.Live = 2 }), attention.Scale, "3 machines wanted, 2 there"},
		{"too many", change(func(f *attention.GroupFacts) { f.Live = 4 }), attention.Scale, "3 machines wanted, 4 there"},
		{"one failed", change(func(f *attention.GroupFacts) { f.Failed = 1 }), attention.Scale, "1 failed machines to replace"},
		{"status late", change(func(f *attention.GroupFacts) { f.Actual.Ready = 2 }), attention.Scale, "status is out of date"},
		{"to be deleted", change(func(f *attention.GroupFacts) { f.Deleting = true }), attention.Deletion, "deletion was asked for; 3 machines left"},
		{"released", change(func(f *attention.GroupFacts) { f.Deleting, f.Finalizer = true, false }), attention.Nothing, "released: the API server removes it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, attention.Decision{Need: row.need, Why: row.why}, attention.MachineSet(row.facts))
			assert.Equal(t, attention.Decision{Need: row.need, Why: row.why}, attention.MachineDeployment(row.facts))
		})
	}
	t.Run("a deployment without a set", func(t *testing.T) {
		f := change(func(f *attention.GroupFacts) { f.Sets = 0 })
		assert.Equal(t, attention.Decision{Need: attention.Scale, Why: "has no set yet"}, attention.MachineDeployment(f))
	})
}
