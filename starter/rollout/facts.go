package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"millwright/api/v1alpha1"
	"millwright/decide/list"
	"millwright/decide/phrase"
	"millwright/decide/rollout"
	"millwright/starter/kubecli"
)

// lines are rows of two cells: the name of a fact and its text. Facts without a text are left out.
func (s snapshot) lines() [][]any {
	lines := [][]any{
		{"machines", s.numbers()},
		{"revision", s.made()},
		{"strategy", s.strategy()},
		{"step", s.step()},
		{"deadline", s.deadline()},
		{"policy", s.policy()},
		{"rollback", s.giveUp()},
	}
	for _, c := range s.status.Conditions {
		switch c.Type {
		case string(v1alpha1.MachineDeploymentReplicaFailure):
			lines = append(lines, []any{"failure", c.Reason + ": " + kubecli.OneLine(c.Message)})
		case string(v1alpha1.MachineDeploymentFrozen):
			lines = append(lines, []any{"frozen", c.Message})
		default: // the other conditions are covered above
		}
	}
	if s.blind() {
		lines = append(lines, []any{"nodes", "not read (--target-kubeconfig): what is updated in place is not known"})
	}
	return slices.DeleteFunc(lines, func(line []any) bool { return line[1] == "" })
}

// made describes the current set: revision, name, class or template, and time of creation.
func (s snapshot) made() string {
	i := s.current()
	if i < 0 {
		return "none of this template yet"
	}
	set := s.tree.Sets[i]
	return fmt.Sprintf(
		"%d, set %s of %s %s, created at %s",
		s.next.Revision,
		set.name,
		s.tree.from,
		cmp.Or(set.from, "-"),
		kubecli.Since(set.created, s.now),
	)
}

// policy names the RolloutPolicy that applies; empty: none does.
func (s snapshot) policy() string {
	if s.tree.policy == nil {
		return ""
	}
	return "RolloutPolicy " + s.tree.policy.Name
}

func (s snapshot) strategy() string {
	o := s.facts
	surge, unavailable := rollout.Bounds(o)
	both := fmt.Sprintf(", maxSurge %s, maxUnavailable %s", resolved(o.Surge, surge), resolved(o.Unavailable, unavailable))
	switch o.Strategy {
	case rollout.InPlaceAuto:
		return "InPlaceUpdate, Auto" + both
	case rollout.InPlaceManual:
		return "InPlaceUpdate, Manual, maxUnavailable " + resolved(o.Unavailable, unavailable)
	case rollout.RollingUpdate:
		return string(o.Strategy) + both
	default:
		return string(o.Strategy)
	}
}

// resolved formats a bound. A percentage is followed by n, the number of machines that it allows.
func resolved(b rollout.Bound, n int) string {
	switch {
	case b.Percent:
		return fmt.Sprintf("%d%% (%d)", b.Value, n)
	case b.Value != n:
		return fmt.Sprintf("%d (%d)", b.Value, n)
	default:
		return fmt.Sprint(n)
	}
}

// step says which rollout step is in force and what ends it; empty if there is none.
func (s snapshot) step() string {
	o, d := s.facts, s.next
	if o.StepCount() == 0 || !d.Rolling {
		return ""
	}
	p := s.progress()
	if p.Step >= len(o.Steps) {
		return fmt.Sprintf("all %d are passed", len(o.Steps))
	}
	step := o.Steps[p.Step]
	if d.Pause != nil {
		return pauseSays(d.Pause, s.when)
	}
	then := fmt.Sprintf("then it lasts %s", phrase.Length(step.Wait))
	if step.Approve {
		then = "then a person must approve it"
	}
	available := 0
	if i := s.current(); i >= 0 {
		available = list.Count(o.Sets[i].Machines, func(m rollout.Member) bool { return m.Available })
	}
	return fmt.Sprintf(
		"%d of %d is to have %s, and %d available; %s",
		p.Step+1,
		len(o.Steps),
		phrase.Count(s.stepSize(p.Step), "machine"),
		available,
		then,
	)
}

// stepSize is the number of updated machines at which a rollout step pauses.
func (s snapshot) stepSize(step int) int {
	return min(s.facts.Steps[step].Size.Of(s.facts.Replicas, true), s.facts.Replicas)
}

// deadline says when the progress deadline passes.
func (s snapshot) deadline() string {
	o, d := s.facts, s.next
	if o.Deadline == nil {
		return "none: progressDeadlineSeconds is not set"
	}
	text := phrase.Length(*o.Deadline) + " without progress"
	switch {
	case d.Late:
		return text + ": it has passed"
	case d.Pause == nil && !d.Recheck.IsZero():
		return text + ": it passes at " + phrase.When(d.Recheck, s.now)
	default:
		return text + "; it does not count at the moment"
	}
}

// progress is the record of the revision that is rolled out, including what the next decision adds.
func (s snapshot) progress() rollout.Progress {
	p := s.facts.Progress
	if s.next.Record != nil {
		p = p.Recorded(*s.next.Record)
	}
	if p.Revision != s.next.Revision {
		return rollout.Progress{}
	}
	return p
}

// giveUp says when the rollout is rolled back automatically; empty if the policy has no automatic rollback.
func (s snapshot) giveUp() string {
	o := s.facts
	var whens []string
	if o.Automatic.OnDeadline {
		whens = append(whens, "when the deadline passes")
	}
	if o.Automatic.Failed {
		whens = append(
			whens,
			fmt.Sprintf(
				"when more than %d new machines have failed, and %d have",
				o.Automatic.MaxFailed,
				len(s.progress().Failed),
			),
		)
	}
	switch {
	case len(whens) == 0:
		return ""
	case o.RolledBackTo != "" && s.current() >= 0 && o.Sets[s.current()].UID == o.RolledBackTo:
		return "not by itself again: an automatic rollback brought this revision"
	default:
		return "by itself " + strings.Join(whens, ", or ")
	}
}
