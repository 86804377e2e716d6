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

// factRows returns one row for each fact, with its name and its text. factRows omits facts whose text is empty.
func (s snapshot) factRows() [][]any {
	lines := [][]any{
		{"machines", s.machineCountsText()},
		{"revision", s.currentSetText()},
		{"strategy", s.strategyText()},
		{"step", s.stepText()},
		{"deadline", s.deadlineText()},
		{"policy", s.policyText()},
		{"rollback", s.automaticRollbackText()},
	}
	for _, c := range s.status.Conditions {
		switch c.Type {
		case string(v1alpha1.MachineDeploymentReplicaFailure):
			lines = append(lines, []any{"failure", c.Reason + ": " + kubecli.CollapseSpaces(c.Message)})
		case string(v1alpha1.MachineDeploymentFrozen):
			lines = append(lines, []any{"frozen", c.Message})
		default: // other conditions are in the rows above
		}
	}
	if s.lacksNodes() {
		lines = append(lines, []any{"nodes", "not read (--target-kubeconfig): what is updated in place is not known"})
	}
	return slices.DeleteFunc(lines, func(line []any) bool { return line[1] == "" })
}

// currentSetText describes the current set: revision, name, class or template, and time of creation.
func (s snapshot) currentSetText() string {
	i := s.currentSetIndex()
	if i < 0 {
		return "none of this template yet"
	}
	set := s.tree.Sets[i]
	return fmt.Sprintf(
		"%d, set %s of %s %s, created at %s",
		s.decision.Revision,
		set.name,
		s.tree.templateWord,
		cmp.Or(set.templateName, "-"),
		kubecli.TimeWithAgeText(set.createdAt, s.now),
	)
}

// policyText names the RolloutPolicy that applies, and its limits of replacements; empty if none applies.
func (s snapshot) policyText() string {
	if s.tree.policy == nil {
		return ""
	}
	return "RolloutPolicy " + s.tree.policy.Name + remediationText(s.tree.policy.Spec.Remediation)
}

// remediationText describes when a policy postpones the replacement of machines; empty if it does not.
func remediationText(r *v1alpha1.MachineSetRemediation) string {
	if r == nil {
		return ""
	}
	var texts []string
	if r.MaxRetry != nil {
		texts = append(texts, fmt.Sprintf(
			"replacements stop after %d failed %s",
			*r.MaxRetry,
			phrase.SingularOrPlural(int(*r.MaxRetry), "retry", "retries"),
		))
	}
	if r.MaxSurge != nil {
		texts = append(texts, fmt.Sprintf("substitutes come first, at most %s at a time", r.MaxSurge.String()))
	}
	return phrase.TextIf(len(texts) > 0, " (%s)", strings.Join(texts, "; "))
}

func (s snapshot) strategyText() string {
	o := s.facts
	surge, unavailable := rollout.SurgeAndUnavailable(o)
	both := fmt.Sprintf(
		", maxSurge %s, maxUnavailable %s",
		surgeOrUnavailableText(o.MaxSurge, surge),
		surgeOrUnavailableText(o.MaxUnavailable, unavailable),
	)
	switch o.Strategy {
	case rollout.InPlaceAuto:
		return "InPlaceUpdate, Auto" + both
	case rollout.InPlaceManual:
		return "InPlaceUpdate, Manual, maxUnavailable " + surgeOrUnavailableText(o.MaxUnavailable, unavailable)
	case rollout.RollingUpdate:
		return string(o.Strategy) + both
	default:
		return string(o.Strategy)
	}
}

// surgeOrUnavailableText formats a bound. A percentage is followed by n, the number of machines that the percentage
// allows.
func surgeOrUnavailableText(b rollout.IntOrPercent, n int) string {
	switch {
	case b.IsPercent:
		return fmt.Sprintf("%d%% (%d)", b.Value, n)
	case b.Value != n:
		return fmt.Sprintf("%d (%d)", b.Value, n)
	default:
		return fmt.Sprint(n)
	}
}

// stepText describes which rollout step is active and what ends it; empty if no step is active.
func (s snapshot) stepText() string {
	o, d := s.facts, s.decision
	if o.StepCount() == 0 || !d.Rolling {
		return ""
	}
	p := s.progressRecord()
	if p.Step >= len(o.Steps) {
		return fmt.Sprintf("all %d are passed", len(o.Steps))
	}
	step := o.Steps[p.Step]
	if d.Pause != nil {
		return pauseText(d.Pause, s.formatTimeWithDate)
	}
	then := fmt.Sprintf("then it lasts %s", phrase.DurationText(step.Wait))
	if step.NeedsApproval {
		then = "then a person must approve it"
	}
	available := 0
	if i := s.currentSetIndex(); i >= 0 {
		available = list.CountWhere(o.Sets[i].Machines, func(m rollout.Member) bool { return m.Available })
	}
	return fmt.Sprintf(
		"%d of %d is to have %s, and %d available; %s",
		p.Step+1,
		len(o.Steps),
		phrase.CountText(s.stepSize(p.Step), "machine"),
		available,
		then,
	)
}

// stepSize is the number of updated machines at which a rollout step pauses.
func (s snapshot) stepSize(step int) int {
	return min(s.facts.Steps[step].Size.ScaledValue(s.facts.Replicas, true), s.facts.Replicas)
}

// deadlineText describes when the progress deadline passes.
func (s snapshot) deadlineText() string {
	o, d := s.facts, s.decision
	if o.ProgressDeadline == nil {
		return "none: progressDeadlineSeconds is not set"
	}
	text := phrase.DurationText(*o.ProgressDeadline) + " without progress"
	switch {
	case d.Late:
		return text + ": it has passed"
	case d.Pause == nil && !d.Recheck.IsZero():
		return text + ": it passes at " + phrase.TimeText(d.Recheck, s.now)
	default:
		return text + "; not running" + cmp.Or(
			phrase.TextIf(d.Pin != nil, ": the rollout is rolled back"),
			phrase.TextIf(d.Complete, ": the rollout is complete"),
			phrase.TextIf(d.Hold != "", ": the rollout waits"),
		)
	}
}

// progressRecord returns the progress record of the revision that is being rolled out, including the additions of the
// next decision.
func (s snapshot) progressRecord() rollout.Progress {
	p := s.facts.Progress
	if s.decision.Record != nil {
		p = p.MergedWith(*s.decision.Record)
	}
	if p.Revision != s.decision.Revision {
		return rollout.Progress{}
	}
	return p
}

// automaticRollbackText describes when an automatic rollback happens; empty if the policy has no automatic rollback.
func (s snapshot) automaticRollbackText() string {
	o := s.facts
	var whens []string
	if o.RollbackPolicy.RollsBackOnDeadline {
		whens = append(whens, "when the deadline passes")
	}
	if o.RollbackPolicy.HasMaxFailed {
		whens = append(
			whens,
			fmt.Sprintf(
				"when more than %d new machines have failed, and %d have",
				o.RollbackPolicy.MaxFailed,
				len(s.progressRecord().Failed),
			),
		)
	}
	switch {
	case len(whens) == 0:
		return ""
	case s.decision.Pin != nil:
		return fmt.Sprintf("none while the deployment is pinned to revision %d", s.decision.Pin.Revision)
	case !o.Progress.Completed.IsZero() && !s.now.Before(o.Progress.Completed.Add(o.RollbackPolicy.BakeTime)):
		return "not any more: the rollout is complete"
	default:
		return "by itself " + strings.Join(whens, ", or ")
	}
}
