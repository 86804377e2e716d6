package capi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"millwright/activities/activitiestest"
	"millwright/api/v1alpha1"
	"millwright/decide/scale"
	"millwright/observe/capi/capitest"
	capiset "millwright/observe/capi/set"
)

func withoutNode(m *clusterv1.Machine) {
	m.Status.NodeRef = clusterv1.MachineNodeReference{}
	m.CreationTimestamp = metav1.Now()
	for i, c := range m.Status.Conditions {
		if c.Type == clusterv1.MachineNodeHealthyCondition {
			m.Status.Conditions[i].Status = metav1.ConditionFalse
		}
	}
}

// The RolloutPolicy of the namespace applies to the remediation of a MachineSet of Cluster API, and the machine says
// why it is not replaced.
func TestRolloutPolicyLimitsTheRemediationOfASet(t *testing.T) {
	record := capiset.GenerationAnnotation(scale.GenerationRecord{Failed: 2, Last: time.Now().Add(-time.Minute)})
	for _, row := range []struct {
		name   string
		policy *v1alpha1.MachineSetRemediation
		says   string // why the machine is not replaced; empty: it is replaced
	}{
		{"no policy: as Cluster API", nil, ""},
		{"the retries are over", &v1alpha1.MachineSetRemediation{MaxRetry: new(int32(1))}, "Machine won't be remediated because 2 generations of machines failed in a row before they had joined (spec.remediation.maxRetry of the RolloutPolicy is 1); annotate a Machine with cluster.x-k8s.io/remediate-machine to try again"},
		{"one retry is left", &v1alpha1.MachineSetRemediation{MaxRetry: new(int32(2))}, ""},
		{"the back-off lasts", &v1alpha1.MachineSetRemediation{Backoff: &metav1.Duration{Duration: time.Hour}}, "Waiting until some time because 2 generations of machines failed in a row before they had joined"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := capitest.NewSet("s", 1, withAnnotation(v1alpha1.AnnotationFailedGenerations, record))
			w, _ := newWorld(t, s, capitest.NewMachine("sick", s, capitest.AsUnhealthyMachine, withoutNode))
			if row.policy != nil {
				w.CreateObjects(activitiestest.NewRolloutPolicy(v1alpha1.RolloutPolicySpec{Remediation: row.policy}))
				w.AwaitCaches()
			}
			d := decideSet(t, w, s)
			switch {
			case row.policy == nil:
				assert.Len(t, d.Scale.Remediate, 1)
				assert.Nil(t, d.Scale.Generations, "without a limit nothing is recorded")
				return
			case row.says == "":
				assert.Empty(t, d.Scale.Remediate, "the record changes the version that the deletion compares")
				assert.Equal(t, 3, d.Scale.Generations.Failed)
				in := newReport(s)
				in.Generations = d.Scale.Generations
				activitiestest.RunActivityTwice[string](w, newActivities(w).ReportClusterAPISet, in)
				w.AwaitCaches()
				d = decideSet(t, w, s)
				assert.Len(t, d.Scale.Remediate, 1, "the generation was counted")
				assert.Nil(t, d.Scale.Generations)
				return
			}
			assert.Empty(t, d.Scale.Remediate)
			require.Equal(t, []string{"sick"}, objectNamesOfExtraWrites(d, "PostponeRemediation"))
			for _, e := range d.Extra {
				for _, o := range e.Objects {
					if o.Name == "sick" {
						assert.Equal(t, []string{"RemediationDeferred", row.says}, []string{o.Reason, replaceTimes(o.Why)})
					}
				}
			}
			assert.Contains(t, d.Blocked.Message, "set s does not replace machines: Machine sick: ")
		})
	}
}
