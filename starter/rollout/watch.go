package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"millwright/decide/drain"
	"millwright/decide/phrase"
	"millwright/process/commandline"
	"millwright/starter/kubecli"
	"millwright/starter/printers"
)

func (f *rolloutCommand) watchCommand() *cobra.Command {
	var interval time.Duration
	var keep bool
	c := &cobra.Command{
		Use:   "watch DEPLOYMENT",
		Short: "Follow a rollout until it is complete",
		Long: `watch shows what status shows, again and again, until the rollout is complete, and ends with the number of machines that were
replaced while it watched. If the output is not a terminal, it prints a line for each change. If the template changes again, it follows
the new revision. A signal such as Ctrl-C ends it with exit code 130 or 143, because
the end of the rollout is not known.

watch fails when the progress deadline has passed, the revision was rolled back, somebody paused the deployment or holds the rollout,
or the deployment is gone or invalid: with exit code 3 if the revision was rolled back, 4 if somebody paused or holds the rollout, and 1 otherwise. With --keep-watching it fails only if the deployment is gone or invalid. It continues while a
step waits for a person.`,
		Example: `  millwright rollout watch shop/web
  millwright rollout watch web -n shop --interval 10s --keep-watching`,
		Args:              kubecli.ObjectArgs,
		ValidArgsFunction: f.CompleteName,
		RunE: func(c *cobra.Command, args []string) error {
			l, err := f.newDeploymentReader(c, args)
			if err != nil {
				return err
			}
			return l.watchRollout(c.Context(), c.OutOrStdout(), &watchState{continuesAfterStop: keep}, interval)
		},
	}
	c.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two reads")
	c.Flags().BoolVar(&keep, "keep-watching", false, "go on when the rollout is paused, held, late or rolled back")
	return c
}

// watchRollout reads the rollout repeatedly until it has ended or ctx is done. watchRollout returns an error of the
// first read, and only prints later errors.
func (l deploymentReader) watchRollout(
	ctx context.Context,
	out io.Writer,
	j *watchState,
	interval time.Duration,
) error {
	w, ended := &printers.WatchPrinter{Out: out, IsTerminal: printers.IsTerminal(out)}, false
	err := printers.FollowObject(ctx, interval, l.readSnapshot, func(s snapshot, err error) (over bool, _ error) {
		switch {
		case j.isDeploymentGone(s, err):
			return true, fmt.Errorf("deployment %s is gone, and its rollout was not complete", l.key)
		case err != nil && j.uid == "":
			return true, err
		case err != nil:
			w.PrintChange(l.now(), err.Error())
			return false, nil
		default:
			ended, err = j.showSnapshot(w, s)
			return ended, err
		}
	})
	if err == nil && !ended {
		return commandline.InterruptedError(ctx, fmt.Sprintf("the rollout of %s is not known to be complete", l.key))
	}
	return err
}

// isDeploymentGone reports whether the watched deployment does not exist any more.
func (j *watchState) isDeploymentGone(s snapshot, err error) bool {
	return j.uid != "" && (apierrors.IsNotFound(err) || err == nil && s.tree.object.GetUID() != j.uid)
}

// showSnapshot prints one snapshot, and reports whether the watch is over.
func (j *watchState) showSnapshot(w *printers.WatchPrinter, s snapshot) (over bool, err error) {
	if change := j.recordSnapshot(&s); change != "" {
		w.PrintLine(s.now, change)
	}
	w.DrawFrame(s.now, s.statusText(s.advice()), s.summaryLine())
	last, err := j.finalLine(s)
	if last != "" {
		w.PrintLine(s.now, last)
	}
	return err != nil || last != "", err
}

// summaryLine returns one line that changes only if a fact changes, not with time.
func (s snapshot) summaryLine() string {
	return s.key() + "  " + s.progressBar() + "  " + s.sentenceWithoutName(s.formatClockTime)
}

// watchState is the state that a watch keeps between two reads.
type watchState struct {
	continuesAfterStop bool // the watch continues if the rollout stops before it is complete

	startedAt     time.Time
	uid           types.UID         // UID of the deployment; empty before the first read
	revision      int64             // the watched revision; 0 if not known yet
	formerSetUIDs map[string]bool   // UIDs of the sets that were old sets in at least one read
	firstSetUIDs  map[string]string // UID of the set in which a machine was first seen, by UID of the machine
	// sentence of the decision that advances the rollout; empty if no decision advances it
	dueDecisionText  string
	dueDecisionSince time.Time // time of the first read with this decision
}

// recordSnapshot adds a snapshot to the state. If the rolled-out revision is not the same as at the last read,
// recordSnapshot returns a line about the change; otherwise, the line is empty. If a decision has been due for longer
// than drain.StepOverdueAfter, recordSnapshot sets overdueSince of the snapshot.
func (j *watchState) recordSnapshot(s *snapshot) (change string) {
	if j.uid == "" {
		j.startedAt, j.uid = s.now, s.tree.object.GetUID()
		j.formerSetUIDs, j.firstSetUIDs = map[string]bool{}, map[string]string{}
	}
	j.recordDueDecision(s)
	if now := s.decision.Revision; now != 0 && !s.isUndoPending() && now != j.revision && !j.isRolledBack(*s) {
		if j.revision != 0 {
			change = fmt.Sprintf("%s: revision %d takes the place of revision %d", s.key(), now, j.revision)
		}
		j.revision = now
	}
	for i, set := range s.facts.Sets {
		if i != s.currentSetIndex() {
			j.formerSetUIDs[set.UID] = true
		}
		for _, m := range set.Machines {
			if j.firstSetUIDs[m.UID] == "" {
				j.firstSetUIDs[m.UID] = set.UID
			}
		}
	}
	return change
}

// isUndoPending reports whether an undo was requested and not executed yet.
func (s snapshot) isUndoPending() bool {
	return s.decision.Rollback != nil
}

// recordDueDecision records since when the current decision is due.
func (j *watchState) recordDueDecision(s *snapshot) {
	due := ""
	if advancesRollout(s.decision) {
		due = s.decision.Why
	}
	if due != j.dueDecisionText {
		j.dueDecisionText, j.dueDecisionSince = due, s.now
	}
	if due != "" && s.now.Sub(j.dueDecisionSince) > drain.StepOverdueAfter {
		s.overdueSince = j.dueDecisionSince
	}
}

// isRolledBack reports whether the watched revision was replaced by the template of a former set.
func (j *watchState) isRolledBack(s snapshot) bool {
	i := s.currentSetIndex()
	return i >= 0 && j.revision != 0 && s.decision.Revision > j.revision && j.formerSetUIDs[s.facts.Sets[i].UID]
}

// finalLine returns the last line of the watch if the rollout is complete, or an error with the reason if the rollout
// has stopped. While the watch continues, finalLine returns an empty text and nil.
func (j *watchState) finalLine(s snapshot) (string, error) {
	failsWith := func(code int, format string, args ...any) (string, error) {
		err := errors.New(s.key() + ": " + fmt.Sprintf(format, args...) + "; " + j.watchDurationText(s))
		return "", commandline.WithExitCode(err, code)
	}
	fails := func(format string, args ...any) (string, error) { return failsWith(1, format, args...) }
	o, d := s.facts, s.decision
	switch {
	case o.Deleting:
		return fails("it is being deleted, and its rollout was not complete")
	case o.InvalidReason != "":
		return fails("nothing can be done with it: %s", o.InvalidReason)
	case j.isRolledBack(s) && !j.continuesAfterStop:
		return failsWith(
			exitRolledBack,
			"revision %d was rolled back: revision %d has the template of set %s again",
			j.revision,
			d.Revision,
			o.Sets[s.currentSetIndex()].Name,
		)
	case d.Pin != nil && d.Pin.By == "" && !j.continuesAfterStop:
		return failsWith(exitRolledBack, "%s", d.Pin.SentenceWithoutTime(d.Revision))
	case s.isRequestFulfilled():
		return fmt.Sprintf("%s: %s; %s", s.key(), s.completionText(), j.watchDurationText(s)), nil
	case j.continuesAfterStop:
		return "", nil
	case o.Paused:
		return failsWith(exitWaitsForPerson, "it is paused%s: %s", phrase.ActorText(o.PausedBy), s.updatedMachinesText())
	case o.HoldReason != "":
		return failsWith(
			exitWaitsForPerson,
			"revision %d is held%s: %s",
			d.Revision,
			phrase.ActorText(o.HoldReason),
			s.updatedMachinesText(),
		)
	case d.Late:
		return fails(
			"revision %d made no progress for %s, and its progress deadline has passed",
			d.Revision,
			phrase.DurationText(*o.ProgressDeadline),
		)
	default:
		return "", nil
	}
}

// isRequestFulfilled reports whether all machines are in the state that the operator wants: they have the template or,
// if an operator has pinned them, the pinned revision.
func (s snapshot) isRequestFulfilled() bool {
	pin := s.decision.Pin
	return s.decision.Complete && (pin == nil || pin.By != "")
}

// completionText names the revision that all machines have.
func (s snapshot) completionText() string {
	if pin := s.decision.Pin; pin != nil {
		return pin.SentenceWithoutTime(s.decision.Revision)
	}
	return s.revisionText() + " is complete"
}

// watchDurationText reports how long the watch took, and how many machines were replaced during the watch.
func (j *watchState) watchDurationText(s snapshot) string {
	word := "replaced"
	if s.isInPlace() {
		word = "updated or replaced"
	}
	return fmt.Sprintf(
		"watched for %s: %s %s",
		phrase.AgeText(s.now.Sub(j.startedAt)),
		phrase.CountText(j.countReplacedMachines(s), "machine"),
		word,
	)
}

// countReplacedMachines returns how many of the machines that were first seen in an old set no longer exist, or are now
// in the current set.
func (j *watchState) countReplacedMachines(s snapshot) int {
	now, left := "", map[string]bool{}
	for i, set := range s.facts.Sets {
		if i == s.currentSetIndex() {
			now = set.UID
			continue
		}
		for _, m := range set.Machines {
			left[m.UID] = true
		}
	}
	n := 0
	for uid, set := range j.firstSetUIDs {
		if set != now && !left[uid] {
			n++
		}
	}
	return n
}
