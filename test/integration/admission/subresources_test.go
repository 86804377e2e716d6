//go:build integration

package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
)

var machineTemplate = v1alpha1.MachineTemplateSpec{
	ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"name": "shop"}},
	Spec:       v1alpha1.MachineSpec{Class: v1alpha1.ClassSpec{Kind: "MachineClass", Name: "aws"}},
}

var templateSelector = metav1.LabelSelector{MatchLabels: map[string]string{"name": "shop"}}

func testScaleSubresource(t *testing.T, api *apiServer) {
	meta := metav1.ObjectMeta{Name: "scaled"}
	client := api.typedClient.MachineV1alpha1()
	set, err := client.MachineSets(testNamespace).Create(t.Context(), &v1alpha1.MachineSet{
		ObjectMeta: meta, Spec: v1alpha1.MachineSetSpec{Selector: &templateSelector, Template: machineTemplate},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	set.Status = v1alpha1.MachineSetStatus{Replicas: 2, Selector: "name=shop"}
	_, err = client.MachineSets(testNamespace).UpdateStatus(t.Context(), set, metav1.UpdateOptions{})
	require.NoError(t, err)

	deployment, err := client.MachineDeployments(testNamespace).Create(t.Context(), &v1alpha1.MachineDeployment{
		ObjectMeta: meta, Spec: v1alpha1.MachineDeploymentSpec{Selector: &templateSelector, Template: machineTemplate},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	deployment.Status = v1alpha1.MachineDeploymentStatus{Replicas: 2, Selector: "name=shop"}
	_, err = client.MachineDeployments(testNamespace).UpdateStatus(t.Context(), deployment, metav1.UpdateOptions{})
	require.NoError(t, err)

	for _, plural := range []string{"machinesets", "machinedeployments"} {
		t.Run(plural, func(t *testing.T) {
			at := resourcePath(plural) + "/scaled/scale"
			raw, err := resultBody(api.restClient.Get().AbsPath(at).Do(t.Context()))
			require.NoError(t, err)
			var scale autoscalingv1.Scale
			require.NoError(t, json.Unmarshal(raw, &scale))
			assert.EqualValues(t, 0, scale.Spec.Replicas)
			assert.Equal(t, autoscalingv1.ScaleStatus{Replicas: 2, Selector: "name=shop"}, scale.Status)

			scaleTo := func(replicas int) ([]byte, error) {
				patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
				return resultBody(api.restClient.Patch(types.MergePatchType).AbsPath(at).Body([]byte(patch)).Do(t.Context()))
			}
			raw, err = scaleTo(5)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(raw, &scale))
			assert.EqualValues(t, 5, scale.Spec.Replicas)
			_, err = scaleTo(-1)
			assert.ErrorContains(t, err, "spec.replicas in body should be greater than or equal to 0")
		})
	}
	set, err = client.MachineSets(testNamespace).Get(t.Context(), "scaled", metav1.GetOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 5, set.Spec.Replicas)
	deployment, err = client.MachineDeployments(testNamespace).Get(t.Context(), "scaled", metav1.GetOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 5, deployment.Spec.Replicas)
}

// apiObject has the methods that the four kinds share.
type apiObject interface {
	metav1.Object
	runtime.Object
}

// testStatusSubresource tests the status subresource of each kind. A request to the object does not change the status.
// A request to the subresource changes the status and does not change the spec. The generation increases only when the
// spec changes.
func testStatusSubresource(t *testing.T, api *apiServer) {
	since := metav1.Unix(1700000000, 0)
	motion := &v1alpha1.Operation{
		WorkflowID: "w",
		Step:       "wait",
		Since:      since,
		Deadline:   &since,
		BlockedBy:  []string{"none left"},
	}
	meta := metav1.ObjectMeta{Name: "status"}
	for _, tc := range []struct {
		plural     string
		object     apiObject
		changeSpec map[string]any
	}{
		{"machines", &v1alpha1.Machine{
			ObjectMeta: meta, Spec: machineTemplate.Spec,
			Status: v1alpha1.MachineStatus{
				CurrentOperation: motion,
				LastOperation:    v1alpha1.LastOperation{State: v1alpha1.MachineStateProcessing, Type: v1alpha1.MachineOperationCreate},
				CurrentStatus:    v1alpha1.CurrentStatus{Phase: v1alpha1.MachinePending, TimeoutActive: true, LastUpdateTime: since},
				Conditions: []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
					{Type: v1alpha1.MachineClassReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonClassNotFound},
				},
			},
		}, map[string]any{"providerID": "changed"}},
		{"machinesets", &v1alpha1.MachineSet{
			ObjectMeta: meta, Spec: v1alpha1.MachineSetSpec{Selector: &templateSelector, Template: machineTemplate},
			Status: v1alpha1.MachineSetStatus{
				Replicas: 1, CurrentOperation: motion,
				Conditions:     []v1alpha1.MachineSetCondition{{Type: v1alpha1.MachineSetReplicaFailure, Status: v1alpha1.ConditionTrue}},
				FailedMachines: []v1alpha1.MachineSummary{{Name: "a", OwnerRef: "status"}},
			},
		}, map[string]any{"replicas": 7}},
		{"machinedeployments", &v1alpha1.MachineDeployment{
			ObjectMeta: meta, Spec: v1alpha1.MachineDeploymentSpec{Selector: &templateSelector, Template: machineTemplate},
			Status: v1alpha1.MachineDeploymentStatus{
				Replicas: 1, CurrentOperation: motion, CollisionCount: new(int32),
				Conditions: []v1alpha1.MachineDeploymentCondition{{
					Type: v1alpha1.MachineDeploymentProgressing, Status: v1alpha1.ConditionUnknown, Reason: v1alpha1.ReasonDeploymentPaused,
				}},
			},
		}, map[string]any{"replicas": 7}},
		{"machineclasses", &v1alpha1.MachineClass{
			ObjectMeta: meta, ProviderSpec: runtime.RawExtension{Raw: []byte(`{"a":"b"}`)},
			Status: v1alpha1.MachineClassStatus{
				ObservedGeneration: 1, CurrentOperation: motion,
				Conditions: []metav1.Condition{{
					Type: "Ready", Status: metav1.ConditionTrue, Reason: "ClassFound", LastTransitionTime: since,
				}},
			},
		}, nil},
	} {
		t.Run(tc.plural, func(t *testing.T) {
			tc.object.GetObjectKind().SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kindsByPlural[tc.plural]))
			text, err := json.Marshal(tc.object)
			require.NoError(t, err)
			sent := parseYAML(t, text)

			raw, err := api.createObject(t.Context(), text)
			require.NoError(t, err)
			stored := parseYAML(t, raw)
			assert.NotContains(t, stored, "status", "a status was taken with the object")

			stored["status"] = sent["status"]
			if tc.changeSpec != nil {
				maps.Copy(stored["spec"].(map[string]any), tc.changeSpec)
			} else {
				stored["provider"] = "changed"
			}
			text, err = json.Marshal(stored)
			require.NoError(t, err)
			raw, err = api.sendRequest(t.Context(), http.MethodPut, resourcePath(tc.plural)+"/status/status", text)
			require.NoError(t, err)
			stored = parseYAML(t, raw)
			_, lost := diffObjects("", sent, stored)
			assert.Empty(t, lost, "the status is not what was sent, or the spec changed with it")
			assert.EqualValues(t, 1, stored["metadata"].(map[string]any)["generation"])
		})
	}
}

func testPrinterColumns(t *testing.T, api *apiServer) {
	resources, err := api.discoveryClient.ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	require.NoError(t, err)
	shortNames, subresources := map[string][]string{}, []string{}
	for _, r := range resources.APIResources {
		if r.ShortNames != nil {
			shortNames[r.Name] = r.ShortNames
		}
		subresources = append(subresources, r.Name)
		assert.True(t, r.Namespaced, r.Name)
	}
	assert.Equal(t, map[string][]string{
		"machines": {
			"mc",
		},
		"machinesets":        {"mcs"},
		"machinedeployments": {"mcd"},
		"machineclasses":     {"mcc"},
		"rolloutpolicies":    {"rop"},
	}, shortNames)
	assert.ElementsMatch(t, []string{
		"machines",
		"machines/status",
		"machinesets",
		"machinesets/status",
		"machinesets/scale",
		"machinedeployments",
		"machinedeployments/status",
		"machinedeployments/scale",
		"machineclasses",
		"machineclasses/status",
		"rolloutpolicies",
	}, subresources)

	for plural, want := range map[string][]string{
		"machines":           {"Name", "Status", "Age", "Node", "ProviderID (wide)", "Waits-For", "Class (wide)", "Since (wide)", "Deadline (wide)"},
		"machinesets":        {"Name", "Desired", "Current", "Ready", "Age", "Waits-For", "Since (wide)", "Deadline (wide)"},
		"machinedeployments": {"Name", "Ready", "Desired", "Up-to-date", "Available", "Age", "Waits-For", "Since (wide)", "Deadline (wide)"},
		"machineclasses":     {"Name", "Provider", "Served", "Reason", "Age"},
		"rolloutpolicies":    {"Name", "Rollback", "Max-Replacements", "Turns", "Age"},
	} {
		raw, err := resultBody(api.restClient.Get().AbsPath(resourcePath(plural)).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()))
		require.NoError(t, err)
		var table metav1.Table
		require.NoError(t, json.Unmarshal(raw, &table))
		var columns []string
		for _, column := range table.ColumnDefinitions {
			name := column.Name
			if column.Priority > 0 {
				name += " (wide)"
			}
			columns = append(columns, name)
		}
		assert.Equal(t, want, columns, plural)
	}
}
