package attention_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/attention"
)

func TestDecideClass(t *testing.T) {
	for _, row := range []struct {
		name  string
		facts attention.ClassFacts
		need  attention.Need
		why   string
	}{
		{"in order", attention.ClassFacts{HasFinalizer: true, MachineCount: 3}, attention.NeedNothing, "its finalizers are in place"},
		{"new, before any machine refers to it", attention.ClassFacts{}, attention.NeedFinalizers, "new: our finalizer is missing"},
		{"new, with machines", attention.ClassFacts{MachineCount: 3, UnguardedSecretCount: 1}, attention.NeedFinalizers, "new: our finalizer is missing"},
		{"its Secret lacks our finalizer", attention.ClassFacts{HasFinalizer: true, UnguardedSecretCount: 2}, attention.NeedFinalizers, "2 Secrets to guard"},
		{"a Secret is needed no more", attention.ClassFacts{HasFinalizer: true, UnusedSecretCount: 1}, attention.NeedFinalizers, "1 Secret to release: no class needs it"},
		{"to go, and machines refer to it", attention.ClassFacts{Deleting: true, HasFinalizer: true, MachineCount: 5}, attention.NeedDeletion, "deletion was asked for; 5 machines refer to it"},
		{"to go, with machines and without its Secret's finalizer", attention.ClassFacts{Deleting: true, HasFinalizer: true, MachineCount: 5, UnguardedSecretCount: 1}, attention.NeedFinalizers, "1 Secret to guard"},
		{"to go, with machines, and a Secret is needed no more", attention.ClassFacts{Deleting: true, HasFinalizer: true, MachineCount: 5, UnusedSecretCount: 1}, attention.NeedFinalizers, "1 Secret to release: no class needs it"},
		{"to go, and nothing refers to it", attention.ClassFacts{Deleting: true, HasFinalizer: true, UnusedSecretCount: 1}, attention.NeedDeletion, "deletion was asked for; no machine refers to it"},
		{"served, and no status says so", attention.ClassFacts{HasFinalizer: true, ServingKnown: true}, attention.NeedServingReport, "a worker serves its provider"},
		{"served, as the status says", attention.ClassFacts{HasFinalizer: true, ServingKnown: true, ServingReported: true}, attention.NeedNothing, "its finalizers are in place"},
		{"served again", attention.ClassFacts{HasFinalizer: true, ServingKnown: true, ServingReported: true, ReportedUnserved: true}, attention.NeedServingReport, "a worker serves its provider again"},
		{"not served, and no status says so", attention.ClassFacts{HasFinalizer: true, ServingKnown: true, Unserved: true}, attention.NeedServingReport, "no worker serves its provider"},
		{"served no more", attention.ClassFacts{HasFinalizer: true, ServingKnown: true, Unserved: true, ServingReported: true}, attention.NeedServingReport, "no worker serves its provider"},
		{"not served, as the status says", attention.ClassFacts{HasFinalizer: true, ServingKnown: true, Unserved: true, ServingReported: true, ReportedUnserved: true}, attention.NeedNothing, "its finalizers are in place"},
		{"not known whether it is served", attention.ClassFacts{HasFinalizer: true}, attention.NeedNothing, "its finalizers are in place"},
		{"released", attention.ClassFacts{Deleting: true, UnusedSecretCount: 1}, attention.NeedNothing, "released: the API server removes it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := attention.DecideClass(row.facts)
			assert.Equal(t, attention.Decision{Need: row.need, Why: row.why}, d)
			assert.Equal(t, row.need == attention.NeedNothing, d.NeedsNothing())
		})
	}
}
