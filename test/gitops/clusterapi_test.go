package gitops

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/explain"
	"millwright/decide/rollout"
	"millwright/decide/scale"
	"millwright/observe/capi"
	capideployment "millwright/observe/capi/deployment"
	capiset "millwright/observe/capi/set"
)

// newClusterAPIDeployment returns the deployment of Cluster API with the status that Millwright writes for the facts.
func newClusterAPIDeployment(t *testing.T, o rollout.Facts) *unstructured.Unstructured {
	t.Helper()
	o.ClusterAPI.Machines = &scale.DeploymentMachines{}
	d := &clusterv1.MachineDeployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineDeployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: o.Generation},
	}
	d.Spec.Replicas = new(int32(o.Replicas))
	if o.Deleting {
		d.DeletionTimestamp = &metav1.Time{Time: now}
	}
	tree := capideployment.ObjectTree{Deployment: d}
	capideployment.ApplyStatus(tree, &d.Status, rollout.PlannedStatus(o), explain.Summary{}, metav1.NewTime(now))
	d.Status.ObservedGeneration = o.ObservedGeneration
	return toUnstructured(t, d)
}

// asV1Beta1 returns an object of v1beta2 as the API server returns it in v1beta1, with the fields that the tools read.
func asV1Beta1(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	o = o.DeepCopy()
	o.SetAPIVersion(clusterv1.GroupVersion.Group + "/v1beta1")
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	require.NoError(t, err)
	former, found, err := unstructured.NestedSlice(o.Object, "status", "deprecated", "v1beta1", "conditions")
	require.NoError(t, err)
	require.True(t, found)
	require.NoError(t, unstructured.SetNestedSlice(o.Object, conditions, "status", "v1beta2", "conditions"))
	require.NoError(t, unstructured.SetNestedSlice(o.Object, former, "status", "conditions"))
	unstructured.RemoveNestedField(o.Object, "status", "deprecated")
	return o
}

// Flux reads the version that the API server prefers. Argo CD reads the version of the object in Git.
func TestHealthOfClusterAPIDeployments(t *testing.T) {
	lacks := rollout.Problem{
		Reason:  "TemplateNotFound",
		Message: "X shop/x does not exist: no set is created for the template",
	}
	answered := func(a rollout.ExtensionAnswer) func(*rollout.Facts) {
		return func(o *rollout.Facts) {
			a.TargetSetUID = "uid-new"
			o.ClusterAPI.UsesExtension, o.ClusterAPI.RequiresExtension = true, true
			o.Sets[0].ClusterAPI.ExtensionAnswer = a
		}
	}
	suspended := func(o *rollout.Facts) { o.ClusterAPI.SuspensionReason = capi.ClusterPausedMessage }
	for _, row := range append(bothFamilies(), []verdictRow{
		{"the Cluster is paused in a rollout", newCompleteRolloutFacts(withStartedRollout(1), suspended), "Suspended", status.InProgressStatus, "Cluster spec.paused"},
		{"the Cluster is paused after the rollout", newCompleteRolloutFacts(suspended), "Healthy", status.CurrentStatus, "Cluster spec.paused"},
		{"a template is missing", newCompleteRolloutFacts(func(o *rollout.Facts) {
			o.Sets[0].Current, o.CreationProblem = false, lacks
		}), "Degraded", status.FailedStatus, "X shop/x does not exist"},
		{"the extension refuses", newCompleteRolloutFacts(withStartedRollout(1), answered(rollout.ExtensionAnswer{Why: "the disk differs"})), "Degraded", status.FailedStatus, "the disk differs"},
		{"the extension does not answer", newCompleteRolloutFacts(withStartedRollout(1), answered(rollout.ExtensionAnswer{Failed: true, Why: "timeout"})), "Degraded", status.FailedStatus, "timeout"},
	}...) {
		t.Run(row.name, func(t *testing.T) {
			o := newClusterAPIDeployment(t, row.facts)
			assertVerdicts(t, o, row)
			health, message := runHealthScript(t, asV1Beta1(t, o))
			assert.Equal(t, row.argo, health, "v1beta1: %s", message)
		})
	}
}

// kstatus knows no state before the first status, because the CustomResourceDefinition of Cluster API has no default
// for status.observedGeneration.
func TestHealthBeforeTheFirstStatus(t *testing.T) {
	o := newClusterAPIDeployment(t, newCompleteRolloutFacts())
	unstructured.RemoveNestedField(o.Object, "status")
	assertVerdicts(t, o, verdictRow{argo: "Progressing", kstatus: status.CurrentStatus, message: "generation 1"})
}

func TestHealthOfClusterAPISets(t *testing.T) {
	members := func(ready int, all ...string) (members []scale.Member) {
		for i, name := range all {
			m := scale.Member{Name: name, UID: name, Version: "1", MatchesSelector: true}
			m.Ready = scale.ConditionFalse
			if i < ready {
				m.Ready, m.Joined = scale.ConditionTrue, true
			}
			members = append(members, m)
		}
		return members
	}
	for _, row := range []struct {
		name    string
		members []scale.Member
		change  func(*scale.Facts)
		argo    string
		kstatus status.Status
		message string
	}{
		{"complete", members(2, "a", "b"), nil, "Healthy", status.CurrentStatus, ""},
		{"scales up", members(1, "a"), nil, "Progressing", status.InProgressStatus, "1 machine"},
		{"scales down", members(3, "a", "b", "c"), nil, "Progressing", status.InProgressStatus, "3 machines"},
		{"a machine boots", members(1, "a", "b"), nil, "Progressing", status.InProgressStatus, "1 of 2 available"},
		{"paused", members(1, "a"), func(o *scale.Facts) { o.PauseSentences = []string{"ann paused it"} }, "Suspended", status.InProgressStatus, "ann"},
		{"paused when complete", members(2, "a", "b"), func(o *scale.Facts) { o.PauseSentences = []string{"ann paused it"} }, "Healthy", status.CurrentStatus, ""},
		{"a template is missing", members(1, "a"), func(o *scale.Facts) { o.MissingObjectKinds = []string{"X"} }, "Degraded", status.FailedStatus, "X does not exist"},
		{"invalid", members(2, "a", "b"), func(o *scale.Facts) { o.InvalidReason = "the selector cannot be read" }, "Degraded", status.FailedStatus, "selector"},
		{"not observed", members(2, "a", "b"), func(o *scale.Facts) { o.Generation = 2 }, "Progressing", status.InProgressStatus, "generation 2"},
		{"deletion", members(2, "a", "b"), func(o *scale.Facts) { o.Deleting = true }, "", status.TerminatingStatus, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			facts := scale.Facts{
				Now: now, Generation: 1, Members: row.members, NameParts: []string{"web-", ""},
				Settings: scale.Settings{Replicas: 2}, ClusterAPI: scale.ClusterAPISet{ReportsReconciling: true},
			}
			if row.change != nil {
				row.change(&facts)
			}
			s := &clusterv1.MachineSet{
				TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachineSet"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 1},
			}
			capiset.ApplyStatus(s, capi.RelatedObjects{}, scale.PlanSet(facts).Status, explain.Summary{}, metav1.NewTime(now))
			if s.Generation = facts.Generation; facts.Deleting {
				s.DeletionTimestamp = &metav1.Time{Time: now}
			}
			o := toUnstructured(t, s)
			verdict, err := status.Compute(o)
			require.NoError(t, err)
			assert.Equal(t, row.kstatus, verdict.Status, verdict.Message)
			if row.argo == "" {
				return // Argo CD runs no script for an object that is being deleted
			}
			for _, version := range []*unstructured.Unstructured{o, asV1Beta1(t, o)} {
				health, message := runHealthScript(t, version)
				assert.Equal(t, row.argo, health, "%s: %s", version.GetAPIVersion(), message)
				assert.Contains(t, message, row.message)
			}
		})
	}
}

// The script also runs for the objects that Cluster API's own controllers reconcile.
func TestHealthOfObjectsOfClusterAPIsControllers(t *testing.T) {
	for _, row := range []struct {
		conditions []string // types that are True
		argo       string
	}{
		{[]string{"MachinesReady", "Available"}, "Healthy"},
		{[]string{"Available"}, "Progressing"},
		{nil, "Progressing"},
		{[]string{"MachinesReady", "RollingOut"}, "Progressing"},
		{[]string{"MachinesReady", "ScalingUp"}, "Progressing"},
		{[]string{"MachinesReady", "ScalingDown"}, "Progressing"},
		{[]string{"MachinesReady", "Remediating"}, "Progressing"},
		{[]string{"MachinesReady", "RollingOut", "Paused"}, "Suspended"},
	} {
		t.Run(fmt.Sprint(row.conditions), func(t *testing.T) {
			d := &clusterv1.MachineDeployment{Spec: clusterv1.MachineDeploymentSpec{ClusterName: "web"}}
			d.Generation, d.Status.ObservedGeneration = 1, 1
			for _, kind := range row.conditions {
				d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{Type: kind, Status: "True", Reason: kind})
			}
			health, message := runHealthScript(t, toUnstructured(t, d))
			assert.Equal(t, row.argo, health, message)
		})
	}
}
