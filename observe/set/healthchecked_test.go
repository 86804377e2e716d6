package set_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/observetest"
	"millwright/observe/set"
)

func TestHealthCheckResult(t *testing.T) {
	const check, mark = v1alpha1.MachineHealthCheckSucceeded, v1alpha1.MachineOwnerRemediated
	for name, row := range map[string]struct {
		conditions []corev1.NodeCondition
		check      scale.ConditionStatus
		marked     bool
	}{
		"nothing":                           {nil, "", false},
		"it is healthy":                     {[]corev1.NodeCondition{observetest.NewNodeCondition(string(check), "True")}, scale.ConditionTrue, false},
		"it is not, and nobody is asked":    {[]corev1.NodeCondition{observetest.NewNodeCondition(string(check), "False")}, scale.ConditionFalse, false},
		"it is not, and its owner is asked": {[]corev1.NodeCondition{observetest.NewNodeCondition(string(check), "False"), observetest.NewNodeCondition(string(mark), "False")}, scale.ConditionFalse, true},
		"its owner has done it":             {[]corev1.NodeCondition{observetest.NewNodeCondition(string(check), "False"), observetest.NewNodeCondition(string(mark), "True")}, scale.ConditionFalse, false},
		"it is healthy again":               {[]corev1.NodeCondition{observetest.NewNodeCondition(string(check), "True"), observetest.NewNodeCondition(string(mark), "False")}, scale.ConditionTrue, false},
		"a mark alone says nothing":         {[]corev1.NodeCondition{observetest.NewNodeCondition(string(mark), "False")}, "", false},
		"another condition":                 {[]corev1.NodeCondition{observetest.NewNodeCondition("Ready", "False")}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := observetest.NewMachine("m")
			m.Status.Conditions = row.conditions
			got, marked := set.HealthCheckResult(m)
			assert.Equal(t, row.check, got)
			assert.Equal(t, row.marked, marked)
		})
	}
}
