package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"millwright/decide/phrase"
	"millwright/process/commandline"
	"millwright/starter/printers"
)

// Exit codes of `rollout watch` and `rollout status --wait`, in addition to those of all commands.
const (
	exitRolledBack     = 3 // the revision was rolled back
	exitWaitsForPerson = 4 // somebody has paused or holds the rollout, or a step waits for an approval
)

// waiting has the flags of `rollout status --wait`.
type waiting struct {
	isWanted bool
	timeout  time.Duration // zero: no limit
	interval time.Duration // time between two reads
}

// waitForRollout reads the rollout until it is complete, has failed or waits for a person, until the timeout has passed,
// or until ctx is done. It writes a line to progress for each change. The returned snapshot is the last one that was
// read; the error is nil only if the rollout is complete.
func (l deploymentReader) waitForRollout(
	ctx context.Context,
	progress io.Writer,
	w waiting,
) (last snapshot, err error) {
	limited := ctx
	if w.timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	printer, j, ended := printers.WatchPrinter{Out: progress}, watchState{}, false
	err = printers.FollowObject(limited, w.interval, l.readSnapshot, func(s snapshot, err error) (bool, error) {
		switch {
		case j.isDeploymentGone(s, err):
			return true, fmt.Errorf("deployment %s is gone, and its rollout was not complete", l.key)
		case err != nil && j.uid == "":
			return true, err
		case err != nil:
			printer.PrintChange(l.now(), err.Error())
			return false, nil
		}
		if change := j.recordSnapshot(&s); change != "" {
			printer.PrintLine(s.now, change)
		}
		printer.PrintChange(s.now, s.summaryLine())
		last = s
		line, err := j.finalLine(s)
		if err == nil && line == "" {
			err = s.approvalError()
		}
		ended = line != "" || err != nil
		return ended, err
	})
	switch {
	case err != nil || ended:
		return last, err
	case ctx.Err() != nil:
		return last, commandline.InterruptedError(ctx, fmt.Sprintf("the rollout of %s is not known to be complete", l.key))
	case j.uid == "":
		return last, fmt.Errorf("deployment %s was not read within %s", l.key, phrase.DurationText(w.timeout))
	default:
		return last, fmt.Errorf("%s: not complete after %s: %s",
			l.key, phrase.DurationText(w.timeout), last.sentenceWithoutName(last.formatTimeWithDate))
	}
}

// approvalError returns an error if a step waits for a person; nil otherwise.
func (s snapshot) approvalError() error {
	if pause := s.decision.Pause; pause == nil || !pause.Approve {
		return nil
	}
	return commandline.WithExitCode(
		errors.New(s.key()+": "+s.sentenceWithoutName(s.formatTimeWithDate)),
		exitWaitsForPerson,
	)
}
