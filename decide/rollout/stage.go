package rollout

import (
	"slices"
	"time"
)

// Gate is a stage that is reached, and what ends it.
type Gate struct {
	Step    int       // from 0
	Of      int       // stages in all
	Size    int       // new machines that it has
	Approve bool      // a person has to pass it
	Until   time.Time // when it ends by itself; zero when it does not
}

// progress returns the record of the revision that is being rolled out, brought up to date, and the gate it waits at.
func (b *book) progress() (Progress, *Gate) {
	p := b.o.Progress
	if b.now == nil {
		return p, nil
	}
	if revision := b.revision(); p.Revision != revision {
		p = Progress{Revision: revision, Automatic: p.ReturnsTo != "" && p.ReturnsTo == b.now.Name}
	}
	p.ReturnsTo = ""
	p.Failed = b.failures(p.Failed)
	if !b.o.staged() || !b.underway() {
		return p, nil
	}
	return b.stage(p)
}

// stage finds the stage in force and how many new machines it wants. A stage that a person passed is over, reached or not.
func (b *book) stage(p Progress) (Progress, *Gate) {
	for ; p.Step < len(b.o.Steps); p = p.next() {
		step := b.o.Steps[p.Step]
		if p.Step < b.o.Approved {
			continue
		}
		b.target = min(step.Size.of(b.o.Replicas, true), b.o.Replicas)
		if p.Reached.IsZero() {
			if !b.reached() {
				return p, nil
			}
			p.Reached = b.o.Now.Truncate(time.Second)
		}
		gate := &Gate{Step: p.Step, Of: len(b.o.Steps), Size: b.target, Approve: step.Approve}
		if !step.Approve {
			if gate.Until = p.Reached.Add(step.Wait); !b.o.Now.Before(gate.Until) {
				continue
			}
		}
		return p, gate
	}
	b.target = b.o.Replicas
	return p, nil
}

func (p Progress) next() Progress {
	p.Step, p.Reached = p.Step+1, time.Time{}
	return p
}

// reached reports whether the stage in force has its machines, and old ones are not more than they should be.
func (b *book) reached() bool {
	over := sum(b.sets, size) > b.o.Replicas && b.o.Strategy == RollingUpdate
	return b.now.available >= b.target && !over
}

// underway reports whether there are machines of other templates.
func (b *book) underway() bool {
	return sum(b.old(), func(e *entry) int { return max(e.size, e.live+e.going) }) > 0
}

// failures adds the new machines that failed to those that are known. More than the policy asks for are not added, nor any where
// there is none; what is on record stays.
func (b *book) failures(known []string) []string {
	if !b.o.Automatic.Failed {
		return known
	}
	known = slices.Clone(known)
	for _, m := range b.now.Machines {
		if m.Failed && !slices.Contains(known, m.Name) && len(known) <= b.o.Automatic.MaxFailed {
			known = append(known, m.Name)
		}
	}
	slices.Sort(known)
	return known
}

// says tells what a gate waits for.
func (g *Gate) says() string {
	until := "until a person passes it"
	if !g.Approve {
		until = "until " + g.Until.UTC().Format(time.RFC3339)
	}
	return phrase("stage %d of %d has its %s and waits %s", g.Step+1, g.Of, machines(g.Size), until)
}
