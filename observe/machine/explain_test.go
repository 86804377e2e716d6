package machine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/api/v1alpha1"
	"millwright/decide/drain"
	observe "millwright/observe/machine"
)

// The deadline of evictions is calculated, because an operator may extend the drain. The deadline of a wait for volumes
// is read from the status.
func TestDeadlineOfABlockedDrain(t *testing.T) {
	began := time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)
	recorded, evictions := metav1.NewTime(began.Add(2*time.Minute)), began.Add(v1alpha1.DefaultDrainTimeout)
	for name, c := range map[string]struct {
		blockedBy []string
		at        time.Time
	}{
		"volumes":              {[]string{"Volume pv-1", "Volume pv-2"}, recorded.Time},
		"a budget":             {[]string{"PodDisruptionBudget shop/web"}, evictions},
		"a budget and volumes": {[]string{"PodDisruptionBudget shop/web", "Volume pv-1"}, evictions},
		"nothing":              {nil, evictions},
	} {
		t.Run(name, func(t *testing.T) {
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(began))}}
			m.Status.Deletion = &v1alpha1.MachineDeletion{
				Stage: v1alpha1.MachineDeletionDrain,
				Since: metav1.NewTime(began),
				Drain: &v1alpha1.MachineDrain{
					StartedAt:  metav1.NewTime(began),
					Means:      string(drain.MeansEvict),
					MeansSince: new(metav1.NewTime(began)),
				},
			}
			m.Status.CurrentOperation = &v1alpha1.Operation{
				Step:      "evict-pods",
				Since:     metav1.NewTime(began),
				Deadline:  &recorded,
				BlockedBy: c.blockedBy,
			}
			assert.Equal(t, c.at.UTC(), observe.ExplanationFacts(m, nil, began.Add(time.Minute)).Deadline.UTC())
		})
	}
}

// If a Secret does not allow its use by a class, the suggested command names the Secrets of other namespaces.
func TestSuggestedCommandNamesSecretsOfOtherNamespaces(t *testing.T) {
	m, of := &v1alpha1.Machine{}, &v1alpha1.MachineClass{}
	m.Namespace, of.Namespace = "shop", "shop"
	m.Status.CurrentOperation = &v1alpha1.Operation{Step: "create-instance", BlockedBy: []string{"SecretNotAllowed"}}
	of.SecretRef = &corev1.SecretReference{Name: "data"}
	of.CredentialsSecretRef = &corev1.SecretReference{Namespace: "lent", Name: "creds"}
	assert.Equal(t, []string{"lent/creds"}, observe.ExplanationFacts(m, of, time.Time{}).OtherNamespaceSecrets)
}

// A creation that waits for a person is retried an hour after the creation stopped.
func TestStartTimeOfAStoppedCreation(t *testing.T) {
	stopped := metav1.NewTime(time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC))
	m := &v1alpha1.Machine{}
	m.Status.CurrentOperation = &v1alpha1.Operation{Step: "create-instance", BlockedBy: []string{"Unauthenticated"}}
	assert.Zero(t, observe.ExplanationFacts(m, nil, stopped.Time).CreationStoppedAt)
	m.Status.CreationStopped = &v1alpha1.CreationStopped{Total: metav1.Duration{Duration: time.Hour}}
	assert.Zero(t, observe.ExplanationFacts(m, nil, stopped.Time).CreationStoppedAt, "it goes on")
	m.Status.CreationStopped.Since = &stopped
	assert.Equal(t, stopped.Time, observe.ExplanationFacts(m, nil, stopped.Time).CreationStoppedAt)
}
