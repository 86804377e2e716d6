package preserve_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"millwright/decide/preserve"
)

const (
	preserveKey               = "node.machine.sapcloud.io/preserve"
	lastAppliedKey            = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	scaleDownDisabledKey      = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	scaleDownDisabledByMCMKey = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
)

type (
	annotationMap = map[string]string
	factsChange   = func(*preserve.Facts)
)

// noon is the time of most tests. noonPlus96h is noon plus 96 hours.
var (
	noon        = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	noonPlus96h = noon.Add(96 * time.Hour)
)

func annotationWithText(text string) preserve.Annotation {
	return preserve.Annotation{Present: true, Text: text}
}

// runningMachineFacts returns a running machine with a node. The node and the machine have no annotation preserve.
func runningMachineFacts(changes ...factsChange) preserve.Facts {
	f := preserve.Facts{NodeExists: true, Timeout: 96 * time.Hour, Now: noon}
	for _, c := range changes {
		c(&f)
	}
	return f
}

func withMachineAnnotation(text string) factsChange {
	return func(f *preserve.Facts) { f.OnMachine = annotationWithText(text) }
}

func withNodeAnnotation(text string) factsChange {
	return func(f *preserve.Facts) { f.OnNode = annotationWithText(text) }
}

func withLastAppliedAnnotation(text string) factsChange {
	return func(f *preserve.Facts) { f.LastApplied = annotationWithText(text) }
}
func asFailedMachine(f *preserve.Facts) { f.Failed = true }
func withDrainResult(result string) factsChange {
	return func(f *preserve.Facts) { f.Drained = result }
}
func asRecoveredMachine(f *preserve.Facts) { f.Failed = false }
func withTaint(f *preserve.Facts)          { f.Tainted = true }
func withoutCurrentTime(f *preserve.Facts) { f.Now = time.Time{} }
func afterDuration(d time.Duration) factsChange {
	return func(f *preserve.Facts) { f.Now = f.Now.Add(d) }
}

func withoutAnnotations(f *preserve.Facts) {
	f.OnMachine, f.OnNode = preserve.Annotation{}, preserve.Annotation{}
}

func withScaleDownDisabledByMillwright(f *preserve.Facts) {
	f.ScaleDownDisabled, f.DisabledByUs = annotationWithText("true"), annotationWithText("true")
}

func withScaleDownDisabledByUser(f *preserve.Facts) { f.ScaleDownDisabled = annotationWithText("true") }

// withoutNode removes the node of a machine.
func withoutNode(f *preserve.Facts) {
	f.NodeExists, f.OnNode, f.Tainted, f.Condition = false, preserve.Annotation{}, false, nil
	f.ScaleDownDisabled, f.DisabledByUs = preserve.Annotation{}, preserve.Annotation{}
}

// withCompletePreservation completes all changes of the preservation that the annotations request.
func withCompletePreservation(t *testing.T) factsChange {
	return func(f *preserve.Facts) {
		*f = applyAllChanges(t, *f)
		require.Equal(t, noonPlus96h, f.Expiry, "the test means to preserve it")
	}
}

// applyAllChanges calls Decide and executes the changes until no change is missing.
func applyAllChanges(t *testing.T, f preserve.Facts) preserve.Facts {
	t.Helper()
	for range 4 {
		d := preserve.Decide(f)
		if d.IsEmpty() {
			return f
		}
		f = applyDecision(f, d)
	}
	require.Fail(t, "it never ends", "%+v", f)
	return f
}

// writesOfDecision returns the writes of a decision, in the order in which the activity executes them.
func writesOfDecision(d preserve.Decision) []factsChange {
	expiry := func(f *preserve.Facts) {
		if d.ChangesStatus {
			f.Expiry = d.Expiry
		}
	}
	marks := func(f *preserve.Facts) {
		applyMapEdit(
			d.Node.Annotations,
			map[string]*preserve.Annotation{
				preserveKey:               &f.OnNode,
				scaleDownDisabledKey:      &f.ScaleDownDisabled,
				scaleDownDisabledByMCMKey: &f.DisabledByUs,
			},
		)
		f.Tainted = f.Tainted && !d.Node.RemovesTaint || d.Node.AddsTaint
	}
	condition := func(f *preserve.Facts) {
		if d.Node.Condition != nil {
			f.Condition = d.Node.Condition
		}
	}
	machine := func(f *preserve.Facts) {
		applyMapEdit(
			d.Machine.Annotations,
			map[string]*preserve.Annotation{preserveKey: &f.OnMachine, lastAppliedKey: &f.LastApplied},
		)
	}
	if d.IsPreserved {
		return []factsChange{expiry, marks, condition, machine}
	}
	return []factsChange{condition, marks, machine, expiry}
}

func applyMapEdit(e preserve.MapEdit, keys map[string]*preserve.Annotation) {
	for _, key := range e.Remove {
		*keys[key] = preserve.Annotation{}
	}
	for key, text := range e.Set {
		*keys[key] = annotationWithText(text)
	}
}

func applyDecision(f preserve.Facts, d preserve.Decision) preserve.Facts {
	for _, step := range writesOfDecision(d) {
		step(&f)
	}
	return f
}

// renderFacts renders the preservation as the machine and its node show it. Times are relative to noon.
func renderFacts(f preserve.Facts) string {
	var words []string
	say := func(name string, a preserve.Annotation) {
		if a.Present {
			words = append(words, name+"="+a.Text)
		}
	}
	say("machine", f.OnMachine)
	say("node", f.OnNode)
	say("last", f.LastApplied)
	if !f.Expiry.IsZero() {
		words = append(words, "for "+f.Expiry.Sub(noon).String())
	}
	switch {
	case f.DisabledByUs.Text == "true":
		words = append(words, "disabled by us")
	case f.ScaleDownDisabled.Present:
		words = append(words, "disabled by others")
	}
	if f.Tainted {
		words = append(words, "tainted")
	}
	if c := f.Condition; c != nil {
		words = append(words, fmt.Sprintf("condition %v: %s %s", c.True, c.Reason, c.Message))
	}
	return strings.Join(words, ", ")
}

func hasSortedRemovals(e preserve.MapEdit) bool { return slices.IsSorted(e.Remove) }
