package preserve_test

import (
	"math/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"millwright/decide/decidetest"
	"millwright/decide/preserve"
)

// factsGenerator generates random facts from few values, so that equal values are frequent.
type factsGenerator struct{ *rand.Rand }

func (d factsGenerator) randomAnnotation(texts ...string) preserve.Annotation {
	if d.Intn(3) == 0 {
		return preserve.Annotation{}
	}
	return annotationWithText(texts[d.Intn(len(texts))])
}

func (d factsGenerator) randomPreserveAnnotation() preserve.Annotation {
	return d.randomAnnotation("now", "when-failed", "auto-preserved", "false", "forever", "")
}

func (d factsGenerator) randomFacts() preserve.Facts {
	f := preserve.Facts{
		OnMachine: d.randomPreserveAnnotation(), LastApplied: d.randomPreserveAnnotation(), Failed: d.Intn(2) == 0, Now: noon,
		Timeout: []time.Duration{0, time.Hour, 96 * time.Hour}[d.Intn(3)],
	}
	if d.Intn(2) == 0 {
		f.Expiry = noon.Add(time.Duration(d.Intn(5)-2) * time.Hour)
	}
	if d.Intn(4) == 0 {
		return f
	}
	f.NodeExists, f.OnNode, f.Tainted = true, d.randomPreserveAnnotation(), d.Intn(2) == 0
	f.ScaleDownDisabled, f.DisabledByUs = d.randomAnnotation("true", "false"), d.randomAnnotation("true", "maybe")
	if d.Intn(2) == 0 {
		f.Condition = &preserve.Condition{
			True:    d.Intn(2) == 0,
			Reason:  "Preservation stopped.",
			Message: "Preserved node drained successfully.",
		}
	}
	return f
}

func TestDecisionsConverge(t *testing.T) {
	d := factsGenerator{rand.New(rand.NewSource(1))}
	seen, rounds := map[bool]int{}, decidetest.RandomRunCount(20_000)
	for range rounds {
		f := d.randomFacts()
		decision := preserve.Decide(f)
		require.Equal(t, decision, preserve.Decide(f), "the same facts, the same answer")
		require.Equal(t, decision.IsEmpty(), decision.Why == "", "%+v", decision)
		require.Equal(t, decision.IsPreserved, !decision.Expiry.IsZero())
		require.True(t, decision.Expiry.IsZero() || decision.Expiry.After(f.Now), "%+v", f)
		require.True(t, hasSortedRemovals(decision.Node.Annotations) && hasSortedRemovals(decision.Machine.Annotations))
		require.False(t, decision.Node.AddsTaint && decision.Node.RemovesTaint)
		if !f.NodeExists {
			require.True(t, decision.Node.IsEmpty())
		}
		if f.DisabledByUs.Text != "true" && f.ScaleDownDisabled.Present {
			require.Equal(t, f.ScaleDownDisabled, applyAllChanges(t, f).ScaleDownDisabled, "what others disabled is theirs")
		}
		end := applyAllChanges(t, f)
		if final := preserve.Decide(end); final.IsPreserved {
			require.Equal(t, end.Expiry, final.Expiry)
		} else if f.NodeExists && end.OnNode.Text != "forever" {
			require.Zero(t, end.Expiry)
			require.False(t, end.Tainted)
			require.False(t, end.Condition != nil && end.Condition.True)
		}
		f.Now = time.Time{}
		require.False(
			t,
			f.Expiry.After(noon) && preserve.Decide(f).IsEmpty() != decision.IsEmpty(),
			"who knows no time sees the same: %+v",
			f,
		)
		seen[decision.IsPreserved]++
	}
	assert.Greater(t, seen[true], rounds/10)
	assert.Greater(t, seen[false], rounds/10)
}

// TestRecordedExpiryNeverMoves applies random events to a machine, and interrupts the writes at random.
func TestRecordedExpiryNeverMoves(t *testing.T) {
	d := factsGenerator{rand.New(rand.NewSource(2))}
	var began, ended, failedMeanwhile int
	lives := decidetest.RandomRunCount(500)
	for range lives {
		f := runningMachineFacts()
		for range 60 {
			switch d.Intn(7) {
			case 0:
				f.OnMachine = d.randomPreserveAnnotation()
			case 1:
				f.OnNode = d.randomPreserveAnnotation()
			case 2:
				f.Failed = !f.Failed
			case 3:
				f.Timeout = time.Duration(1+d.Intn(100)) * time.Hour
			case 4:
				f.Now = f.Now.Add(time.Duration(d.Intn(40)) * time.Hour)
			case 5:
				f.ScaleDownDisabled = d.randomAnnotation("true", "false")
			}
			decision := preserve.Decide(f)
			before := f.Expiry
			writes := writesOfDecision(decision)
			for _, write := range writes[:d.Intn(len(writes)+1)] {
				write(&f)
			}
			switch {
			case before.IsZero():
				if !f.Expiry.IsZero() {
					began++
					require.True(t, decision.IsPreserved)
					require.False(t, f.Expiry.Before(f.Now.Add(f.Timeout)), "the whole timeout")
				}
			case f.Expiry.IsZero():
				ended++
				require.False(t, decision.IsPreserved)
			default:
				require.Equal(t, before, f.Expiry, "once on record it stands")
				if f.Failed {
					failedMeanwhile++
				}
			}
			if decision.IsPreserved && !before.IsZero() {
				require.Equal(t, before, decision.Expiry)
			}
		}
	}
	assert.Greater(t, began, lives)
	assert.Greater(t, ended, lives)
	assert.Greater(t, failedMeanwhile, lives)
}
