package rollout

import "time"

// Reasons of the condition Progressing. Source: MCM, but for RolloutHeld and RolloutWaiting, which MCM cannot be in.
const (
	reasonComplete = "NewMachineSetAvailable"
	reasonCreated  = "NewMachineSetCreated"
	reasonFound    = "FoundNewMachineSet"
	reasonUpdated  = "MachineSetUpdated"
	reasonLate     = "ProgressDeadlineExceeded"
	reasonPaused   = "DeploymentPaused"
	reasonResumed  = "DeploymentResumed"
	reasonHeld     = "RolloutHeld"
	reasonWaiting  = "RolloutWaiting"
	reasonNoSet    = "MachineSetCreateError"
	progressing    = "Progressing"
)

// count adds up the machines of all sets.
func (b *book) count() Counts {
	var c Counts
	wanted := 0
	for _, s := range b.o.Sets {
		if !s.Deleting {
			wanted += max(s.Replicas, 0)
		}
		for _, m := range s.Machines {
			c.Replicas++
			if m.Failed && m.Preserved {
				c.PreservedFailed++
			}
			if b.now != nil && s.UID == b.now.UID {
				c.Updated++
			}
			if m.Ready && !m.Deleting {
				c.Ready++
			}
			if m.Available {
				c.Available++
			}
		}
	}
	c.Unavailable = max(wanted-c.Available, 0)
	return c
}

// complete reports whether all that is wanted is there, of the current template, and nothing else. A failed machine that is
// preserved takes a place on purpose.
func (b *book) complete() bool {
	c := b.count()
	return b.now != nil && b.now.size == b.o.Replicas && b.now.Replicas == b.o.Replicas && b.now.Seen == b.o.Replicas &&
		c.Updated == b.o.Replicas && c.Replicas == b.o.Replicas && c.Available+c.PreservedFailed >= b.o.Replicas
}

// moved reports whether there was progress since the status was written: more new machines, fewer old ones, more ready or
// more available. Source: MCM. A rollout that was stopped and goes on has its time from the start, and so has a revision of which
// nothing is on record yet: the former one's lateness is not its own.
func (b *book) moved() bool {
	if b.fresh() {
		return true
	}
	c, r := b.count(), b.o.Reported
	if c.Updated > r.Updated || c.Replicas-c.Updated < r.Replicas-r.Updated || c.Ready > r.Ready || c.Available > r.Available {
		return true
	}
	switch b.o.progressing().Reason {
	case reasonPaused, reasonResumed, reasonHeld, reasonWaiting, reasonComplete, "":
		return true
	default:
		return false
	}
}

// fresh reports whether nothing is on record yet of the revision that is rolled out.
func (b *book) fresh() bool {
	return b.now != nil && b.o.Progress.Revision < b.revision()
}

// due returns when the progress deadline passes; zero when it never does, or has.
func (b *book) due() time.Time {
	last := b.o.progressing()
	if b.o.Deadline == nil || last.Reason == reasonLate || b.plain() || b.o.stopped() != "" || last.Updated.IsZero() || b.complete() || b.moved() {
		return time.Time{}
	}
	return last.Updated.Add(*b.o.Deadline)
}

// late reports whether the progress deadline has passed. Once it has, only progress ends that.
func (b *book) late() bool {
	if b.o.Deadline != nil && b.o.progressing().Reason == reasonLate && !b.moved() && !b.complete() {
		return true
	}
	due := b.due()
	return !due.IsZero() && !b.o.Now.Before(due)
}

// stopped says why the template is not rolled out; empty when it is.
func (o Observed) stopped() string {
	switch {
	case o.Paused:
		return "paused"
	case o.Held != "":
		return "held: " + o.Held
	default:
		return ""
	}
}
