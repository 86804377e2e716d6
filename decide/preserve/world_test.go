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
	ask      = "node.machine.sapcloud.io/preserve"
	last     = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	disabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	byUs     = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
)

type (
	texts  = map[string]string
	change = func(*preserve.Facts)
)

// noon is when most tests happen; 96 hours later is tilNoon.
var (
	noon    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tilNoon = noon.Add(96 * time.Hour)
)

func says(text string) preserve.Annotation { return preserve.Annotation{Present: true, Text: text} }

// facts returns a running machine with a node, and no wish about it.
func facts(changes ...change) preserve.Facts {
	f := preserve.Facts{NodeExists: true, Timeout: 96 * time.Hour, Now: noon}
	for _, c := range changes {
		c(&f)
	}
	return f
}

func onMachine(text string) change { return func(f *preserve.Facts) { f.OnMachine = says(text) } }
func onNode(text string) change    { return func(f *preserve.Facts) { f.OnNode = says(text) } }
func lastApplied(text string) change {
	return func(f *preserve.Facts) { f.LastApplied = says(text) }
}
func failed(f *preserve.Facts) { f.Failed = true }
func drained(result string) change {
	return func(f *preserve.Facts) { f.Drained = result }
}
func recovered(f *preserve.Facts) { f.Failed = false }
func tainted(f *preserve.Facts)   { f.Tainted = true }
func timeless(f *preserve.Facts)  { f.Now = time.Time{} }
func after(d time.Duration) change {
	return func(f *preserve.Facts) { f.Now = f.Now.Add(d) }
}

func silent(f *preserve.Facts) { f.OnMachine, f.OnNode = preserve.Annotation{}, preserve.Annotation{} }

func disabledByUs(f *preserve.Facts) {
	f.ScaleDownDisabled, f.DisabledByUs = says("true"), says("true")
}
func disabledByUser(f *preserve.Facts) { f.ScaleDownDisabled = says("true") }

// without is a machine without a node.
func without(f *preserve.Facts) {
	f.NodeExists, f.OnNode, f.Tainted, f.Condition = false, preserve.Annotation{}, false, nil
	f.ScaleDownDisabled, f.DisabledByUs = preserve.Annotation{}, preserve.Annotation{}
}

// kept makes a machine one that was preserved as its annotations ask, completely.
func kept(t *testing.T) change {
	return func(f *preserve.Facts) {
		*f = settled(t, *f)
		require.Equal(t, tilNoon, f.Expiry, "the test means to preserve it")
	}
}

// settled decides and acts until nothing is to be done any more.
func settled(t *testing.T, f preserve.Facts) preserve.Facts {
	t.Helper()
	for range 4 {
		d := preserve.Decide(f)
		if d.Empty() {
			return f
		}
		f = acted(f, d)
	}
	require.Fail(t, "it never ends", "%+v", f)
	return f
}

// steps are the writes that a decision asks for, in the order of the activity.
func steps(d preserve.Decision) []change {
	expiry := func(f *preserve.Facts) {
		if d.StatusChange {
			f.Expiry = d.Expiry
		}
	}
	marks := func(f *preserve.Facts) {
		edit(
			d.Node.Annotations,
			map[string]*preserve.Annotation{ask: &f.OnNode, disabled: &f.ScaleDownDisabled, byUs: &f.DisabledByUs},
		)
		f.Tainted = f.Tainted && !d.Node.Untaint || d.Node.Taint
	}
	condition := func(f *preserve.Facts) {
		if d.Node.Condition != nil {
			f.Condition = d.Node.Condition
		}
	}
	machine := func(f *preserve.Facts) {
		edit(d.Machine.Annotations, map[string]*preserve.Annotation{ask: &f.OnMachine, last: &f.LastApplied})
	}
	if d.Preserve {
		return []change{expiry, marks, condition, machine}
	}
	return []change{condition, marks, machine, expiry}
}

func edit(e preserve.Edit, keys map[string]*preserve.Annotation) {
	for _, key := range e.Remove {
		*keys[key] = preserve.Annotation{}
	}
	for key, text := range e.Set {
		*keys[key] = says(text)
	}
}

func acted(f preserve.Facts, d preserve.Decision) preserve.Facts {
	for _, step := range steps(d) {
		step(&f)
	}
	return f
}

// told renders what the objects say of preservation; the time is told from noon on.
func told(f preserve.Facts) string {
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

func sorted(e preserve.Edit) bool { return slices.IsSorted(e.Remove) }
