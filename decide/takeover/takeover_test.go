package takeover_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/attention"
	"millwright/decide/takeover"
)

var now = time.Date(2026, 11, 21, 14, 6, 7, 0, time.UTC)

// newFacts returns the facts of an empty namespace without a running MCM, and applies the change to them.
func newFacts(change func(*takeover.Facts)) takeover.Facts {
	f := takeover.Facts{Now: now, Namespace: "shop"}
	change(&f)
	return f
}

// findingsOfObject returns the findings about an object, each as "weight says".
func findingsOfObject(f takeover.Facts, object string) (lines []string) {
	for _, x := range takeover.Decide(f) {
		if x.Object == object {
			lines = append(lines, string(x.Weight)+" "+x.Message)
		}
	}
	return lines
}

// The new value of a Secret's annotation contains the old value.
func TestTheAnnotationOfASecretKeepsItsOldValue(t *testing.T) {
	for before, after := range map[string]string{"": "shop", "bakery": "bakery,shop"} {
		f := newFacts(func(f *takeover.Facts) {
			l := takeover.CrossNamespaceSecret{Namespace: "credentials", Name: "account", AllowedNamespaces: before}
			f.Classes = []takeover.Class{
				{Name: "c", Exists: true, Provider: "aws", CrossNamespaceSecrets: []takeover.CrossNamespaceSecret{l}},
			}
		})
		first := takeover.Decide(f)[0]
		assert.Equal(t, "machineclass/c", first.Object)
		assert.Equal(
			t,
			"kubectl annotate secret --namespace credentials account --overwrite "+
				"'machine.sapcloud.io/allowed-class-namespaces="+after+"', "+
				"or start the workers of providers with --allow-secrets-without-consent",
			first.Advice,
		)
	}
}

func TestFindingsNameAtMostFiveNamespaces(t *testing.T) {
	f := newFacts(func(f *takeover.Facts) {
		for i := range 8 {
			f.OtherNamespaces = append(
				f.OtherNamespaces,
				takeover.OtherNamespace{Namespace: fmt.Sprintf("n-%d", 8-i), MachineCount: 2},
			)
		}
	})
	assert.Equal(
		t,
		[]string{"first Millwright acts on its 2 Machines, too, with the same target cluster"},
		findingsOfObject(f, "namespace/n-1"),
	)
	assert.Empty(t, findingsOfObject(f, "namespace/n-6"))
	assert.Equal(t, []string{"first 3 more namespaces have Machines"}, findingsOfObject(f, "namespaces"))
}

func TestTakeoverFindings(t *testing.T) {
	lease := func(ago time.Duration) takeover.Lease {
		return takeover.Lease{
			Name:      "machine-controller",
			Holder:    "pod-1",
			RenewedAt: now.Add(-ago),
			Duration:  15 * time.Second,
		}
	}
	for name, row := range map[string]struct {
		change func(*takeover.Facts)
		object string
		want   []string
	}{
		"MCM has stopped":      {func(f *takeover.Facts) { f.Leases = []takeover.Lease{lease(16 * time.Second)} }, "machine-controller-manager", []string{"ok it is not at work in namespace shop"}},
		"MCM renews its Lease": {func(f *takeover.Facts) { f.Leases = []takeover.Lease{lease(15 * time.Second)} }, "machine-controller-manager", []string{"first it is at work: pod-1 renewed Lease machine-controller at 14:05:52 UTC"}},
		"MCM gave its Lease back": {func(f *takeover.Facts) {
			f.Leases = []takeover.Lease{{Name: "machine-controller", RenewedAt: now, Duration: 15 * time.Second}}
		}, "machine-controller-manager", []string{"ok it is not at work in namespace shop"}},
		"MCM without a Lease": {func(f *takeover.Facts) {
			f.MCMControllers = []takeover.MCMController{{Name: "machine-controller-manager", Replicas: 2}}
		}, "machine-controller-manager", []string{"first Deployment machine-controller-manager has 2 replicas"}},
		"MCM scaled to 0": {func(f *takeover.Facts) {
			f.MCMControllers = []takeover.MCMController{{Name: "machine-controller-manager"}}
		}, "machine-controller-manager", []string{"ok it is not at work in namespace shop"}},
		"the CRDs of MCM":             {func(f *takeover.Facts) { f.MissingKinds = []string{"machinedrainrules", "rolloutpolicies"} }, "CRDs", []string{"first the API server has no machinedrainrules, rolloutpolicies"}},
		"not everything can be read":  {func(f *takeover.Facts) { f.UnreadableObjects = []string{"leases is forbidden"} }, "rights", []string{"first leases is forbidden"}},
		"a class that does not exist": {func(f *takeover.Facts) { f.Classes = []takeover.Class{{Name: "c", MachineCount: 2}} }, "machineclass/c", []string{"note it does not exist, and 2 machines name it: their instances can be neither created nor deleted"}},
		"a class without a provider": {func(f *takeover.Facts) {
			f.Classes = []takeover.Class{{Name: "c", Exists: true, InvalidProviderReason: "is empty"}}
		}, "machineclass/c", []string{"first it has no provider: Millwright does not know which worker to ask for its instances"}},
		"a provider that cannot be a name": {func(f *takeover.Facts) {
			f.Classes = []takeover.Class{{Name: "c", Exists: true, Provider: "a_b", InvalidProviderReason: "a_b is no name"}}
		}, "machineclass/c", []string{"first a_b is no name"}},
		"classes that are well": {func(f *takeover.Facts) { f.Classes = []takeover.Class{{Name: "c", Exists: true, Provider: "aws"}} }, "machineclasses", []string{"ok 1 class names its provider"}},
		"a Secret of another namespace that does not allow it": {func(f *takeover.Facts) {
			f.Classes = []takeover.Class{{Name: "c", Exists: true, Provider: "aws", CrossNamespaceSecrets: []takeover.CrossNamespaceSecret{
				{Namespace: "credentials", Name: "data", AllowsUse: true}, {Namespace: "credentials", Name: "account"},
			}}}
		}, "machineclass/c", []string{"first it uses Secret credentials/account of another namespace, which does not allow that: instances of its machines can be neither created nor deleted"}},
		"a Secret of another namespace that cannot be read": {func(f *takeover.Facts) {
			f.Classes = []takeover.Class{{Name: "c", Exists: true, Provider: "aws", CrossNamespaceSecrets: []takeover.CrossNamespaceSecret{{Namespace: "credentials", Name: "account", ReadError: "forbidden"}}}}
		}, "machineclass/c", []string{"note it uses Secret credentials/account of another namespace, which cannot be read: forbidden; without the annotation machine.sapcloud.io/allowed-class-namespaces, instances of its machines can be neither created nor deleted"}},
		"a template that is refused": {func(f *takeover.Facts) {
			f.RejectedTemplates = []takeover.RejectedTemplate{{Object: "machinedeployment/d", Reason: "spec.drainTimeout: is negative"}}
		}, "machinedeployment/d", []string{"first the API server takes no machine of its template: spec.drainTimeout: is negative"}},
		"a deployment that is not valid": {func(f *takeover.Facts) {
			f.Deployments = []takeover.Deployment{{Name: "d", InvalidReason: "no selector"}}
		}, "machinedeployment/d", []string{"first no selector"}},
		"no set has the template": {func(f *takeover.Facts) {
			f.Deployments = []takeover.Deployment{{Name: "d", NeedsNewSet: true, Rolling: true, NextAction: "create a set"}}
		}, "machinedeployment/d", []string{"note none of its sets has its template: a rollout begins; create a set"}},
		"a rollout in progress": {func(f *takeover.Facts) {
			f.Deployments = []takeover.Deployment{{Name: "d", Rolling: true, NextAction: "d-2: 1 -> 2"}}
		}, "machinedeployment/d", []string{"note a rollout is in progress, and goes on: d-2: 1 -> 2"}},
		"minReadySeconds is obeyed": {func(f *takeover.Facts) {
			f.Deployments = []takeover.Deployment{{Name: "d", MinReadyDuration: 500 * time.Second}}
		}, "machinedeployment/d", []string{"note minReadySeconds is obeyed: a machine is available 8m20s after it is ready, and not at once"}},
		"minReadySeconds, as MCM": {func(f *takeover.Facts) {
			f.RunsAsMCM, f.Deployments = true, []takeover.Deployment{{Name: "d", MinReadyDuration: 500 * time.Second}}
		}, "machinedeployments", []string{"ok 1 deployment keeps its sets and revisions"}},
		"a freeze that was left":         {func(f *takeover.Facts) { f.Sets = []takeover.MachineSet{{Name: "s", Frozen: true}} }, "machineset/s", []string{"note it is frozen, and stays so: it creates no machines"}},
		"a freeze that was left, as MCM": {func(f *takeover.Facts) { f.RunsAsMCM, f.Sets = true, []takeover.MachineSet{{Name: "s", Frozen: true}} }, "machinesets", []string{"ok 1 set has the wanted size"}},
		"minReadySeconds of a set alone": {func(f *takeover.Facts) {
			f.Sets = []takeover.MachineSet{{Name: "s", Standalone: true, MinReadyDuration: time.Minute}, {Name: "t", MinReadyDuration: time.Minute}}
		}, "machineset/s", []string{"note minReadySeconds is obeyed: a machine is available 60s after it is ready, and not at once"}},
		"that of a deployment's set is one": {func(f *takeover.Facts) {
			f.Sets = []takeover.MachineSet{{Name: "s", Standalone: true, MinReadyDuration: time.Minute}, {Name: "t", MinReadyDuration: time.Minute}}
		}, "machinesets", []string{"ok 1 set has the wanted size"}},
		"a set that is not as it should be": {func(f *takeover.Facts) {
			f.Sets = []takeover.MachineSet{{Name: "s", CreationCount: 2, DeletionCount: 1, MetadataChangeCount: 3, NextAction: "create 2"}}
		}, "machineset/s", []string{"note it is not of the wanted size or template: 2 machines to create, 1 machine to delete, 3 machines to relabel; create 2"}},
		"a set that is not valid": {func(f *takeover.Facts) { f.Sets = []takeover.MachineSet{{Name: "s", InvalidReason: "no selector"}} }, "machineset/s", []string{"first no selector"}},
		"two machines with one instance": {func(f *takeover.Facts) {
			f.Machines = []takeover.Machine{{Name: "a", ProviderID: "x:///1"}, {Name: "b", ProviderID: "x:///1"}, {Name: "c", ProviderID: "x:///2"}}
		}, "machine/a", []string{"first machines a, b name the same instance x:///1"}},
		"two machines with one node": {func(f *takeover.Facts) {
			f.Machines = []takeover.Machine{{Name: "a", NodeName: "n"}, {Name: "b", NodeName: "n"}, {Name: "c"}, {Name: "d"}}
		}, "machine/a", []string{"first machines a, b name the same node n"}},
		"a node of another instance": {func(f *takeover.Facts) {
			f.Machines = []takeover.Machine{{Name: "a", NodeName: "n", ProviderID: "x:///1", NodeProviderID: "x:///2"}}
		}, "machine/a", []string{"first its node n belongs to instance x:///2, and the machine names x:///1: the node would not be drained before the instance is deleted"}},
		"machines that are as they should be": {func(f *takeover.Facts) {
			f.Machines = []takeover.Machine{{Name: "a"}, {Name: "b", Need: attention.NeedPreservationEnd, Preserved: true}, {Name: "c", Need: attention.NeedStatusUpdate}}
		}, "machines", []string{"ok 3 machines are as wanted: machine, node and instance stay as they are; 1 preserved"}},
		"one machine": {func(f *takeover.Facts) { f.Machines = []takeover.Machine{{Name: "a"}} }, "machines", []string{"ok 1 machine is as wanted: machine, node and instance stay as they are"}},
		"machines in every state": {func(f *takeover.Facts) {
			for need, name := range map[attention.Need]string{
				attention.NeedInstance: "i", attention.NeedNodeJoin: "n", attention.NeedRecovery: "r", attention.NeedNodeSync: "s", attention.NeedDeletion: "d",
			} {
				f.Machines = append(f.Machines, takeover.Machine{Name: name, Need: need, NeedReason: "node lacks our finalizer"})
			}
			f.Machines = append(f.Machines, takeover.Machine{Name: "f", Need: attention.NeedStatusUpdate, Fails: true})
		}, "machines", []string{
			"note 1 machine failed: each is replaced when its budget allows that (f)",
			"note 1 machine being created: Millwright adopts the instance that has the name of the machine, or creates one (i)",
			"note 1 machine waiting for a node to join: Millwright waits on, and the creation timeout runs on (n)",
			"note 1 machine unhealthy: Millwright waits on, and the health timeout runs on (r)",
			"note 1 machine with a node that is not as template and class want it: Millwright changes it, as machine-controller-manager would (s); node lacks our finalizer",
			"note 1 machine being deleted: Millwright goes on; a node that is empty is drained within seconds, and then the instance is deleted (d)",
		}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, row.want, findingsOfObject(newFacts(row.change), row.object)) })
	}
}

func TestFindingsAreSortedByWeight(t *testing.T) {
	findings := takeover.Decide(newFacts(func(f *takeover.Facts) {
		f.MissingKinds = []string{"rolloutpolicies"}
		f.Classes = []takeover.Class{{Name: "a"}, {Name: "b", Exists: true}}
		f.Machines = []takeover.Machine{{Name: "m"}}
	}))
	var weights []takeover.FindingWeight
	for _, f := range findings {
		weights = append(weights, f.Weight)
		assert.Equal(
			t,
			f.Weight == takeover.WeightBlocker,
			f.Weight == takeover.WeightBlocker && f.Advice != "",
			"it says what to do: %+v",
			f,
		)
	}
	assert.Equal(
		t,
		[]takeover.FindingWeight{
			takeover.WeightBlocker,
			takeover.WeightBlocker,
			takeover.WeightNote,
			takeover.WeightOK,
			takeover.WeightOK,
		},
		weights,
	)
	assert.Len(t, takeover.Blockers(findings), 2)
	assert.Empty(t, takeover.Blockers(takeover.Decide(newFacts(func(*takeover.Facts) {}))), "an empty namespace")
}

func TestTakeoverSteps(t *testing.T) {
	there, back := takeover.PlanSteps(newFacts(func(f *takeover.Facts) {
		f.RunsAsMCM = true
		f.MCMControllers = []takeover.MCMController{{Name: "machine-controller-manager", Replicas: 1}}
		f.Classes = []takeover.Class{
			{Name: "a", Exists: true, Provider: "aws"},
			{Name: "b", Exists: true, Provider: "aws"},
			{Name: "c", Exists: true},
		}
		f.Machines = []takeover.Machine{{Name: "m-1", Need: attention.NeedInstance}, {Name: "m-2"}}
	}))
	titles := func(steps []takeover.Step) (all []string) {
		for _, s := range steps {
			all = append(all, s.Title)
		}
		return all
	}
	require.Equal(t, []string{
		"Install Millwright, without pods",
		"Correct what is in the way",
		"Stop machine-controller-manager",
		"Start Millwright",
		"What then happens by itself",
		"Look",
		"With Gardener's cluster autoscaler: answer it",
	}, titles(there))
	require.Equal(t, []string{"Stop Millwright", "Start machine-controller-manager"}, titles(back))
	assert.Len(t, there[1].Sentences, 1)
	assert.Contains(t, there[1].Sentences[0], "machineclass/c: it has no provider")
	assert.Equal(t, []string{
		"kubectl scale deployment machine-controller-manager --namespace shop --replicas=0",
		"millwright migrate check --namespace shop --as-mcm   # until its exit code is 0",
	}, there[2].Commands)
	assert.Contains(t, strings.Join(there[2].Sentences, " "), "It was creating m-1.")
	assert.Contains(t, there[3].Sentences, "Workers are needed for provider aws.")
	assert.Contains(t, there[3].Sentences, "Add --as-mcm to worker.args and to bridge.args of your values.")
	assert.Contains(t, strings.Join(there[4].Sentences, " "), "1 machine being created")
	assert.Equal(
		t,
		[]string{"kubectl scale deployment machine-controller-manager --namespace shop --replicas=1"},
		back[1].Commands,
	)

	there, _ = takeover.PlanSteps(newFacts(func(*takeover.Facts) {}))
	assert.NotContains(t, titles(there), "Correct what is in the way", "nothing is")
	for _, s := range there {
		assert.NotContains(t, strings.Join(append(s.Sentences, s.Commands...), " "), "as-mcm")
	}
}

func TestWavesContainTheNamespacesThatOnlyMCMBlocks(t *testing.T) {
	var all []takeover.Facts
	for _, name := range []string{"a", "b", "c", "d"} {
		f := newFacts(func(f *takeover.Facts) {
			f.MCMControllers = []takeover.MCMController{{Name: "machine-controller-manager", Replicas: 1}}
		})
		f.Namespace = name
		all = append(all, f)
	}
	all[1].MissingKinds = []string{"rolloutpolicies"}
	there, back := takeover.PlanWaves(all, 2)
	var titles []string
	for _, step := range there {
		titles = append(titles, step.Title)
	}
	assert.Equal(t, []string{
		"Install Millwright for the namespaces with the label millwright=yes",
		"Correct what is in the way in 1 namespace, which no wave contains",
		"Wave 1: 2 namespaces with 0 machines",
		"Wave 2: 1 namespace with 0 machines",
	}, titles)
	assert.Contains(t, there[2].Commands, "kubectl label namespace a c millwright=yes")
	assert.NotEmpty(t, back)
	there, _ = takeover.PlanWaves(all, 0)
	assert.Len(t, there, 3, "one wave")
}
