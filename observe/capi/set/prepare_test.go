package set_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/decide/scale"
	"millwright/observe/capi/capitest"
	capiset "millwright/observe/capi/set"
)

// A machine's condition OwnerRemediated states once why the machine's set does not replace it yet.
func TestMachinesWithoutRemediationReason(t *testing.T) {
	s := capitest.NewSet("s", 2)
	saying := func(reason, message string) capitest.MachineChange {
		return func(m *clusterv1.Machine) {
			capitest.AsUnhealthyMachine(m)
			capitest.WithConditionReason(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, reason, message)(m)
		}
	}
	const pending, tooMany = "Machine won't be remediated because it is pending removal due to rollout",
		"Waiting because there are already too many remediations in progress (spec.strategy.remediation.maxInFlight is 0)"
	none := func(d *clusterv1.MachineDeployment) { d.Spec.Remediation.MaxInFlight = new(intstr.FromInt32(0)) }
	for _, row := range []struct {
		name     string
		revision string
		machine  capitest.MachineChange
		want     []string // wanted reason and message
	}{
		{"an old revision", "0", capitest.AsUnhealthyMachine, []string{"CannotBeRemediated", pending}},
		{"that it cannot be remediated is said already", "0", saying("CannotBeRemediated", pending), nil},
		{"another reason", "1", saying("CannotBeRemediated", tooMany), []string{"RemediationDeferred", tooMany}},
		{"another message", "1", saying("RemediationDeferred", pending), []string{"RemediationDeferred", tooMany}},
		{"that it is deferred is said already", "1", saying("RemediationDeferred", tooMany), nil},
		{"not marked", "1", func(*clusterv1.Machine) {}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := capitest.NewRelatedObjects(capitest.NewMachine("m", s, row.machine), capitest.NewMachine("fine", s))
			a.Deployment = capitest.NewDeployment(none)
			withSetAnnotation(clusterv1.RevisionAnnotation, row.revision)(s)
			machines, reason := capiset.MachinesWithoutRemediationReason(
				a,
				scale.PlanSet(capiset.ScaleFacts(newCache(), s, a, capitest.Noon, 0)),
			)
			if row.want == nil {
				assert.Empty(t, machines)
				return
			}
			require.Len(t, machines, 1)
			assert.Equal(t, []string{"m", "uid-m", "900"}, []string{machines[0].Name, machines[0].UID, machines[0].Version})
			assert.Equal(t, row.want, []string{reason, machines[0].Why})
		})
	}
}
