package steer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"millwright/decide/verb"
)

// Wish says in words who wants what, and why.
func (o Order) Wish() string {
	o = o.Cleaned()
	what := string(o.Verb)
	if o.Back {
		what += " and return"
	}
	if o.Revision != nil {
		what += fmt.Sprintf(" (revision %d)", *o.Revision)
	}
	if o.Stages != 0 {
		what += fmt.Sprintf(" (%s)", stages(o.Stages))
	}
	return verb.Wish(o.Actor, what, o.Reason)
}

// record is what stays on the deployment of an order. Two different ones have the same only when they ask for the same at
// the same time, and then it is enough to do it once.
func (o Order) record(now time.Time) string {
	return o.at(now).UTC().Format(time.RFC3339Nano) + " " + o.Wish()
}

// at is when an order was given.
func (o Order) at(now time.Time) time.Time {
	if o.Asked.IsZero() {
		return now
	}
	return o.Asked
}

// words say who wants it, and why.
func (o Order) words() string {
	text := cmp.Or(o.Actor, "somebody")
	if o.Reason != "" {
		text += ": " + o.Reason
	}
	return text
}

// rolled names what is rolled out.
func (f Facts) rolled() string {
	return fmt.Sprintf("the rollout of revision %d of deployment %s", f.Revision, f.Deployment)
}

// mostRevisions bounds the revisions that a sentence names.
const mostRevisions = 10

// revisions lists the former ones, the newest first.
func (f Facts) revisions() string {
	sorted := slices.Sorted(slices.Values(f.Revisions))
	slices.Reverse(sorted)
	var names []string
	for _, r := range sorted[:min(len(sorted), mostRevisions)] {
		names = append(names, strconv.FormatInt(r, 10))
	}
	text := strings.Join(names, ", ")
	if more := len(sorted) - mostRevisions; more > 0 {
		text += fmt.Sprintf(" and %d older ones", more)
	}
	return text
}

func stages(n int) string {
	if n == 1 {
		return "1 stage"
	}
	return fmt.Sprintf("%d stages", n)
}
