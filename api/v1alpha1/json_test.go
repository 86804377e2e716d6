package v1alpha1

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

// Names before the bar "|" are MCM's public contract; names after the bar are Millwright's additions.
func TestJSONFieldNamesDoNotChange(t *testing.T) {
	for _, tc := range []struct {
		of    any
		names string
	}{
		{Machine{}, "kind apiVersion metadata spec status"},
		{MachineSpec{}, `class providerID nodeTemplate drainTimeout healthTimeout creationTimeout inPlaceUpdateTimeout
			machinePreserveTimeout disableHealthTimeout maxEvictRetries nodeConditions`},
		{MachineStatus{}, "addresses conditions lastOperation currentStatus lastKnownState | nodeName currentOperation health creationStopped creationIntent joinedAt deletion drain"},
		{CreationIntent{}, "| runID time withoutToken"},
		{MachineDeletion{}, "| stage since queued drain"},
		{MachineDrain{}, "| startedAt means meansSince result leftBehind"},
		{CurrentStatus{}, "phase timeoutActive lastUpdateTime preserveExpiryTime"},
		{LastOperation{}, "description errorCode lastUpdateTime state type"},
		{ClassSpec{}, "apiGroup kind name"},
		{NodeTemplateSpec{}, "metadata spec"},
		{MachineTemplateSpec{}, "metadata spec"},
		{MachineSummary{}, "name providerID lastOperation ownerRef"},
		{Operation{}, "| workflowID rolloutOf step since deadline blockedBy cause waitsFor summary waits"},
		{Wait{}, "| blockedBy cause machines since next nextAt command"},

		{MachineSet{}, "kind apiVersion metadata spec status"},
		{MachineSetSpec{}, "replicas selector machineClass template minReadySeconds autoPreserveFailedMachineMax"},
		{MachineSetStatus{}, `replicas fullyLabeledReplicas readyReplicas availableReplicas preservedFailedReplicas
			observedGeneration machineSetCondition lastOperation failedMachines autoPreserveFailedMachineCount
			| selector currentOperation upToDateReplicas peakReplicas overshoot failedGenerations observedReplicas observedMachines`},
		{MachineSetCondition{}, "type status lastTransitionTime reason message"},

		{MachineDeployment{}, "kind apiVersion metadata spec status"},
		{MachineDeploymentSpec{}, `replicas selector template strategy minReadySeconds revisionHistoryLimit paused rollbackTo
			progressDeadlineSeconds autoPreserveFailedMachineMax`},
		{MachineDeploymentStrategy{}, "type rollingUpdate inPlaceUpdate"},
		{RollingUpdateMachineDeployment{}, "maxUnavailable maxSurge"},
		{InPlaceUpdateMachineDeployment{}, "maxUnavailable maxSurge orchestrationType"},
		{RollbackConfig{}, "revision"},
		{MachineDeploymentStatus{}, `observedGeneration replicas updatedReplicas readyReplicas availableReplicas
			preservedFailedReplicas unavailableReplicas conditions collisionCount failedMachines | replacements selector currentOperation rollout`},
		{MachineDeploymentCondition{}, "type status lastUpdateTime lastTransitionTime reason message"},

		{RolloutPolicy{}, "kind apiVersion metadata spec"},
		{RolloutPolicySpec{}, "targets turns steps automaticRollback machineReplacementPolicy maxReplacements deletionOrder remediation"},
		{RolloutStatus{}, `revision set step steps reachedAt failedMachines automaticRollback attempt formerMachinesUntil completedAt lastGoodSet
			formerGoodSet pin turn`},
		{RolloutTurns{}, "maxConcurrent pauseBetween"},
		{RolloutTurn{}, "since endedAt"},

		{MachineClass{}, `kind apiVersion metadata nodeTemplate credentialsSecretRef providerSpec provider secretRef | status`},
		{NodeTemplate{}, "capacity virtualCapacity instanceType region zone architecture"},
		{MachineClassStatus{}, "| observedGeneration conditions currentOperation"},
	} {
		typ := reflect.TypeOf(tc.of)
		t.Run(typ.Name(), func(t *testing.T) {
			want := strings.Fields(strings.Replace(tc.names, "|", "", 1))
			assert.ElementsMatch(t, want, jsonNames(typ))
		})
	}
}

// jsonNames returns the keys of a struct in JSON, including the keys of inlined structs.
func jsonNames(typ reflect.Type) []string {
	var names []string
	for field := range typ.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if options != "inline" {
			names = append(names, name)
			continue
		}
		inlined := field.Type
		if inlined.Kind() == reflect.Pointer {
			inlined = inlined.Elem()
		}
		names = append(names, jsonNames(inlined)...)
	}
	return names
}

func TestEveryFieldSurvivesJSON(t *testing.T) {
	const text = `{
		"kind": "MachineDeployment", "apiVersion": "machine.sapcloud.io/v1alpha1",
		"metadata": {"name": "shop", "namespace": "default"},
		"spec": {
			"replicas": 3,
			"selector": {"matchLabels": {"name": "shop"}},
			"strategy": {"type": "InPlaceUpdate", "inPlaceUpdate": {
				"maxSurge": "20%", "maxUnavailable": 0, "orchestrationType": "Manual"}},
			"template": {
				"metadata": {"labels": {"name": "shop"}},
				"spec": {
					"class": {"kind": "MachineClass", "name": "shop"},
					"nodeTemplate": {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
					"drainTimeout": "1h30m0s", "maxEvictRetries": 0, "disableHealthTimeout": false
				}
			}
		},
		"status": {"replicas": 0, "updatedReplicas": 0, "readyReplicas": 0, "availableReplicas": 0, "currentOperation": {
			"workflowID": "w", "step": "wait", "since": "2026-01-02T03:04:05Z", "deadline": "2026-01-02T03:14:05Z"}}
	}`
	var deployment MachineDeployment
	require.NoError(t, json.Unmarshal([]byte(text), &deployment))
	got, err := json.Marshal(&deployment)
	require.NoError(t, err)
	assert.JSONEq(t, text, string(got))
}

// A client that leaves out strategy and timeouts must not send empty values, because the API server could not
// distinguish empty values from values that the user has set.
func TestOmittedFieldsStayOmitted(t *testing.T) {
	got, err := json.Marshal(&MachineDeployment{})
	require.NoError(t, err)
	assert.JSONEq(t, `{"spec": {"replicas": 0, "selector": null, "template": {"spec": {"class": {}}}}}`, string(got))

	got, err = json.Marshal(&MachineClass{ProviderSpec: runtime.RawExtension{Raw: []byte(`{"a":1}`)}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"providerSpec": {"a": 1}}`, string(got))
}

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, AddToScheme(scheme))
	for _, kind := range []string{"Machine", "MachineSet", "MachineDeployment", "MachineClass"} {
		assert.True(t, scheme.Recognizes(SchemeGroupVersion.WithKind(kind)), kind)
		assert.True(t, scheme.Recognizes(SchemeGroupVersion.WithKind(kind+"List")), kind+"List")
	}
	assert.True(t, scheme.Recognizes(SchemeGroupVersion.WithKind("WatchEvent")))
	assert.Equal(t, "machines.machine.sapcloud.io", Resource("machines").String())
}
