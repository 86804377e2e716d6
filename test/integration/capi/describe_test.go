//go:build integration

package capi

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"millwright/devstack/build"
	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// testDrainHookAnnotation is the annotation of a hook that blocks the drain of a machine.
const testDrainHookAnnotation = "pre-drain.delete.hook.machine.cluster.x-k8s.io/test"

// describeCluster runs clusterctl describe for the Cluster of a namespace, with all conditions of its sets and
// machines.
func (s testNamespace) describeCluster(t *testing.T, program string) string {
	t.Helper()
	return runClusterctl(
		t,
		program,
		"describe",
		"cluster",
		s.name,
		"--namespace",
		s.name,
		"--kubeconfig",
		testRig.Stack.KubeconfigPath(component.TestIdentity),
		"--show-conditions",
		"all",
		"--show-machinesets",
		"--grouping=false",
	)
}

// newPausedDeployment creates a paused MachineDeployment, which no controller reconciles. The MachineDeployment becomes
// the controller owner of the set, because clusterctl shows no sets without a MachineDeployment.
func (p pool) newPausedDeployment(t *testing.T) {
	t.Helper()
	set := p.getObject(t, machineSetResource, p.poolName)
	template, _, err := unstructured.NestedMap(set.Object, "spec", "template")
	require.NoError(t, err)
	d, err := p.resourceClient(machineDeploymentResource).
		Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
			"metadata": map[string]any{"name": p.poolName, "annotations": map[string]any{"cluster.x-k8s.io/paused": ""}},
			"spec": map[string]any{
				"clusterName": p.name,
				"replicas":    int64(0),
				"template":    template,
				"selector":    map[string]any{"matchLabels": map[string]any{"pool": p.poolName}},
			},
		}}, metav1.CreateOptions{})
	require.NoError(t, err)
	p.applyMergePatch(t, machineSetResource, p.poolName, fmt.Sprintf(`{"metadata":{
		"labels":{"cluster.x-k8s.io/deployment-name":%[1]q},
		"ownerReferences":[{"apiVersion":"cluster.x-k8s.io/v1beta2","kind":"MachineDeployment","name":%[1]q,"uid":%[2]q,"controller":true,"blockOwnerDeletion":true}]}}`, p.poolName, d.GetUID()))
}

// parseDescription returns clusterctl's description of a set: the numbers in its line, and its conditions as TYPE
// STATUS REASON in clusterctl's order. parseDescription leaves out names, ages, machines and the messages, which are
// wrapped.
func parseDescription(text, set string) (numbers string, conditions []string) {
	head, _, _ := strings.Cut(text, "\n")
	since, within := strings.Index(head, "SINCE"), false
	for row := range strings.SplitSeq(text, "\n") {
		runes := []rune(row)
		name := strings.TrimLeft(row, "│├└─ ")
		switch {
		case strings.HasPrefix(name, "MachineSet ") && strings.Contains(name, "/"+set+","):
			within, numbers = true, strings.Join(strings.Fields(name)[3:], " ")
		case within && strings.HasPrefix(strings.TrimPrefix(name, "!! DELETED !! "), "Machine "):
			return numbers, conditions
		case within && len(runes) > since:
			if of := strings.Fields(strings.TrimLeft(string(runes[:since]), "│├└─ ")); len(of) == 3 {
				conditions = append(conditions, strings.Join(of, " "))
			}
		}
	}
	return numbers, conditions
}

// conditionsOfSet returns the conditions of the set as TYPE STATUS REASON MESSAGE, in the order of the status.
func (p pool) conditionsOfSet(t *testing.T) (all []string) {
	t.Helper()
	list, _, err := unstructured.NestedSlice(p.getObject(t, machineSetResource, p.poolName).Object, "status", "conditions")
	require.NoError(t, err)
	for _, item := range list {
		c := item.(map[string]any)
		message, _ := c["message"].(string)
		all = append(all, strings.TrimSpace(fmt.Sprint(c["type"], " ", c["status"], " ", c["reason"], " ", message)))
	}
	return all
}

// machineNamePattern matches the names of machines, which have random suffixes.
var machineNamePattern = regexp.MustCompile(`described-(ours|theirs)(-[a-z0-9]{5})?`)

// clusterctl prints a set of Millwright like a set of Cluster API: the same numbers, and the same conditions in the
// same order, with the same reasons and messages. Only sets of Millwright have the conditions MachinesCreated and
// Blocked.
func TestClusterctlDescribesSetsOfBothControllersAlike(t *testing.T) {
	t.Parallel()
	repo, err := build.FindRepo("")
	require.NoError(t, err)
	program, err := build.ClusterctlPath(t.Context(), repo, os.Stderr)
	require.NoError(t, err)
	s := newNamespace(t, "described", "plane.yaml")
	s.awaitMachines(t, 0)
	ours, theirs := s.newPool(t, "described-ours", 0), s.newPool(t, "described-theirs", 0)
	theirs.applyMergePatch(
		t,
		machineSetResource,
		theirs.poolName,
		fmt.Sprintf(
			`{"metadata":{"labels":{%[1]q:%[2]q}},"spec":{"template":{"metadata":{"labels":{%[1]q:%[2]q}}}}}`,
			component.WatchFilterLabel,
			component.UpstreamFilterValue,
		),
	)
	rig.Eventually(t, "core has made the Cluster an owner of its set", func() (bool, any) {
		// core writes the whole list of owner references, and would overwrite the test's change
		owners := theirs.getObject(t, machineSetResource, theirs.poolName).GetOwnerReferences()
		return len(owners) == 1 && owners[0].Kind == "Cluster", owners
	})
	both := []pool{ours, theirs}
	own := func(line string) bool { // the conditions that only Millwright writes
		kind, _, _ := strings.Cut(line, " ")
		return slices.Contains([]string{"MachinesCreated", "Blocked", "Reconciling", "Stalled"}, kind)
	}
	alike := func(what string, expect ...string) {
		t.Helper()
		rig.Eventually(t, what+": both sets are described alike", func() (bool, any) {
			text := s.describeCluster(t, program)
			looked := fmt.Sprintf(`{"metadata":{"annotations":{"test/looked":%q}}}`, time.Now())
			// without a change, Cluster API's controller retries after errors with a back-off of up to 17 minutes
			theirs.applyMergePatch(t, machineSetResource, theirs.poolName, looked)
			var printed, said [2]string
			for i, p := range both {
				numbers, conditions := parseDescription(text, p.poolName)
				conditions = slices.DeleteFunc(conditions, own)
				printed[i] = numbers + "\n" + strings.Join(conditions, "\n")
				for _, m := range p.listMachines(t) {
					// core ignores events of Millwright's sets: only a change of the machine makes core compare the
					// templates again
					p.applyMergePatch(t, machineResource, m.GetName(), looked)
				}
				said[i] = machineNamePattern.ReplaceAllString(
					strings.Join(slices.DeleteFunc(p.conditionsOfSet(t), own), "\n"),
					"NAME",
				)
			}
			ok := printed[0] == printed[1] && said[0] == said[1] && strings.Count(printed[0], "\n") == 7
			for _, part := range expect {
				ok = ok && strings.Contains(printed[0]+"\n"+said[0], part)
			}
			// print the differences first, because CI shows only the beginning of a long output
			return ok, strings.Join(append(printed[:], said[:]...), "\n\n") + "\n\n" + text
		})
	}
	for _, p := range both {
		p.newPausedDeployment(t)
		p.scale(t, 2)
	}
	alike(
		"running",
		"2/2 2 2 2\n",
		"ScalingUp False NotScalingUp",
		"MachinesReady True Ready",
		"Paused False NotPaused\nDeleting False NotDeleting",
	)

	for _, p := range both { // a hook blocks the drain of each machine, so that the sets stay in this state
		for _, m := range p.listMachines(t) {
			p.applyMergePatch(
				t,
				machineResource,
				m.GetName(),
				fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, testDrainHookAnnotation),
			)
		}
		p.scale(t, 1)
	}
	alike("scaling down", "ScalingDown True ScalingDown Scaling down from 2 to 1 replicas")
	p := ours
	rig.Eventually(t, "the set names the machine that the hook keeps", func() (bool, any) {
		status, reason, message := p.readCondition(t, "Blocked")
		return status == "True" && reason == "Waiting" &&
			strings.HasPrefix(message, "1 of 2 machines waits to leave (since ") &&
			strings.Contains(message, "the hook "+testDrainHookAnnotation+" keeps it"), message
	})
	rig.Eventually(t, "explain says what the status says, and top has the set", func() (bool, any) {
		// Temporal lists a run only some time after the run has written the condition
		_, _, message := p.readCondition(t, "Blocked")
		explained := strings.Join(
			testRig.RunMillwright(
				t,
				"explain",
				"machineset.cluster.x-k8s.io/"+p.poolName,
				"--namespace",
				p.name,
				"--temporal-address",
				testRig.Stack.TemporalAddress(),
			),
			"\n",
		)
		top := strings.Join(testRig.RunMillwright(t, "top", "--namespace", p.name, "--blocked"), "\n")
		return strings.Contains(explained, "machineset.cluster.x-k8s.io "+p.name+"/"+p.poolName+": "+message) &&
			strings.Contains(explained, "await-hooks") &&
			strings.Contains(top, p.name+"/"+p.poolName+" (machineset)"), message + "\n" + explained + "\n" + top
	})

	for _, p := range both {
		for _, m := range p.listMachines(t) {
			p.applyMergePatch(
				t,
				machineResource,
				m.GetName(),
				fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, testDrainHookAnnotation),
			)
		}
		p.awaitObjectCounts(t, 1)
		p.applyMergePatch(
			t,
			machineSetResource,
			p.poolName,
			`{"spec":{"replicas":2,"template":{"spec":{"infrastructureRef":{"name":"absent"}}}}}`,
		)
	}
	alike(
		"the template is missing",
		"ScalingUp True ScalingUp Scaling up from 1 to 2 replicas is blocked because:\n* DevMachineTemplate does not exist",
	)
}
