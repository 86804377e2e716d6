package attention_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"millwright/decide/attention"
)

func TestNeedOfAClass(t *testing.T) {
	for _, row := range []struct {
		name  string
		facts attention.ClassFacts
		need  attention.Need
		why   string
	}{
		{"in order", attention.ClassFacts{Finalizer: true, Machines: 3}, attention.Nothing, "its finalizers are in place"},
		{"new, before any machine refers to it", attention.ClassFacts{}, attention.Finalizers, "new: our finalizer is missing"},
		{"new, with machines", attention.ClassFacts{Machines: 3, Unguarded: 1}, attention.Finalizers, "new: our finalizer is missing"},
		{"its Secret lacks our finalizer", attention.ClassFacts{Finalizer: true, Unguarded: 2}, attention.Finalizers, "2 Secrets to guard"},
		{"a Secret is needed no more", attention.ClassFacts{Finalizer: true, Unused: 1}, attention.Finalizers, "1 Secret to release: no class needs it"},
		{"to go, and machines refer to it", attention.ClassFacts{Deleting: true, Finalizer: true, Machines: 5}, attention.Deletion, "deletion was asked for; 5 machines refer to it"},
		{"to go, with machines and without its Secret's finalizer", attention.ClassFacts{Deleting: true, Finalizer: true, Machines: 5, Unguarded: 1}, attention.Finalizers, "1 Secret to guard"},
		{"to go, with machines, and a Secret is needed no more", attention.ClassFacts{Deleting: true, Finalizer: true, Machines: 5, Unused: 1}, attention.Finalizers, "1 Secret to release: no class needs it"},
		{"to go, and nothing refers to it", attention.ClassFacts{Deleting: true, Finalizer: true, Unused: 1}, attention.Deletion, "deletion was asked for; no machine refers to it"},
		{"served, and no status says so", attention.ClassFacts{Finalizer: true, Checked: true}, attention.Serve, "a worker serves its provider"},
		{"served, as the status says", attention.ClassFacts{Finalizer: true, Checked: true, Reported: true}, attention.Nothing, "its finalizers are in place"},
		{"served again", attention.ClassFacts{Finalizer: true, Checked: true, Reported: true, ReportedUnserved: true}, attention.Serve, "a worker serves its provider again"},
		{"not served, and no status says so", attention.ClassFacts{Finalizer: true, Checked: true, Unserved: true}, attention.Serve, "no worker serves its provider"},
		{"served no more", attention.ClassFacts{Finalizer: true, Checked: true, Unserved: true, Reported: true}, attention.Serve, "no worker serves its provider"},
		{"not served, as the status says", attention.ClassFacts{Finalizer: true, Checked: true, Unserved: true, Reported: true, ReportedUnserved: true}, attention.Nothing, "its finalizers are in place"},
		{"not known whether it is served", attention.ClassFacts{Finalizer: true}, attention.Nothing, "its finalizers are in place"},
		{"released", attention.ClassFacts{Deleting: true, Unused: 1}, attention.Nothing, "released: the API server removes it"},
	} {
		t.Run(row.name, func(t *testing.T) {
			d := attention.DecideClass(row.facts)
			assert.Equal(t, attention.Decision{Need: row.need, Why: row.why}, d)
			assert.Equal(t, row.need == attention.Nothing, d.NeedsNothing())
		})
	}
}
