package scale

import (
	"fmt"
	"slices"
	"strings"
)

// unlisted is what every condition says when the machines could not be listed, as Cluster API words it.
func unlisted(kind string) Condition {
	return Condition{kind, Unknown, "InternalError", "Please check controller logs for errors"}
}

// wanted is the size that counts.
func (o Observed) wanted() int {
	if o.Deleting {
		return 0
	}
	return o.Replicas
}

// created tells whether the machines that are missing are being made.
func created(o Observed) Condition {
	const kind = "MachinesCreated"
	no := func(reason, message string) Condition { return Condition{kind, False, reason, message} }
	if o.ListFailed {
		return unlisted(kind)
	}
	if o.wanted() > len(o.live()) {
		switch f := o.LastFailure; {
		case len(o.Missing) > 0:
			return no("TemplateNotFound", missing(o)[0])
		case len(o.Preflight) > 0:
			return no("PreflightCheckFailed", strings.Join(blockers(o), "; "))
		case len(blockers(o)) > 0:
			return no("ScaleUpStopped", strings.Join(blockers(o), "; "))
		case o.Invalid != "":
			return no("MachineSetInvalid", o.Invalid)
		case f.Message != "" && !f.Deleting:
			return no("MachineCreationFailed", f.Message)
		}
	}
	return Condition{kind, True, "MachinesCreated", ""}
}

// scalingUp is True until the wanted machines are there and each has been ready once. A machine that was ready and is not
// any more is no scaling.
func scalingUp(o Observed) Condition {
	const kind = "ScalingUp"
	if o.ListFailed {
		return unlisted(kind)
	}
	live := o.live()
	joining := 0
	for _, m := range live {
		if !m.Joined && !m.Failed {
			joining++
		}
	}
	switch {
	case len(live) < o.wanted():
		message := fmt.Sprintf("Scaling up from %d to %d replicas", len(live), o.Replicas)
		if why := obstacles(o); len(why) > 0 {
			message += " is blocked because:\n* " + strings.Join(why, "\n* ")
		}
		return Condition{kind, True, "ScalingUp", message}
	case len(live) == o.wanted() && joining > 0:
		return Condition{kind, True, "ScalingUp", fmt.Sprintf("Scaling up to %d replicas: waiting for %s to become ready", o.Replicas, machines(joining))}
	case !o.Deleting && len(o.Missing) > 0:
		return Condition{kind, False, "NotScalingUp", "Scaling up would be blocked because " + missing(o)[0]}
	default:
		return Condition{kind, False, "NotScalingUp", ""}
	}
}

// obstacles are all reasons why a set that wants more machines makes none.
func obstacles(o Observed) []string {
	why := slices.Concat(blockers(o), o.pauses())
	if o.Invalid != "" {
		why = append(why, o.Invalid)
	}
	return why
}

// scalingDown is True until the objects of surplus machines are gone, and not while machines are missing.
func scalingDown(o Observed) Condition {
	const kind = "ScalingDown"
	switch {
	case o.ListFailed:
		return unlisted(kind)
	case len(o.Members) > o.wanted() && len(o.live()) >= o.wanted():
		message := fmt.Sprintf("Scaling down from %d to %d replicas", len(o.Members), o.wanted())
		return Condition{kind, True, "ScalingDown", message + staleLine(o)}
	default:
		return Condition{kind, False, "NotScalingDown", ""}
	}
}

// deleting tells how far the deletion of the set is.
func deleting(o Observed) Condition {
	const kind = "Deleting"
	switch {
	case o.ListFailed:
		return unlisted(kind)
	case !o.Deleting:
		return Condition{kind, False, "NotDeleting", ""}
	case len(o.Members) == 0:
		return Condition{kind, True, "Deleting", "Deletion completed"}
	case len(o.Members) == 1:
		return Condition{kind, True, "Deleting", "Deleting 1 Machine" + staleLine(o)}
	default:
		return Condition{kind, True, "Deleting", fmt.Sprintf("Deleting %d Machines", len(o.Members)) + staleLine(o)}
	}
}

// paused tells whether somebody wants the set to rest, and who.
func paused(o Observed) Condition {
	if why := o.pauses(); len(why) > 0 {
		return Condition{"Paused", True, "Paused", strings.Join(why, ", ")}
	}
	return Condition{"Paused", False, "NotPaused", ""}
}

// staleLine names the machines whose deletion takes long; empty when there are none.
func staleLine(o Observed) string {
	var names []string
	for _, m := range o.Members {
		if m.Deleting && !m.DeletingSince.IsZero() && !o.Now.Before(m.DeletingSince.Add(staleAfter)) {
			names = append(names, m.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "\n* " + subject(names) + be(names) + "in deletion since more than 15m"
}
