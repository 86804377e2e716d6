// Package rollout answers how big each set of a deployment should be next. The DecideDeployment activity calls it with
// what it read. It knows no API kind and writes nothing. Today it makes and sizes one set; moving machines from an old
// set to a new one is not part of it yet, and it says so where a template has changed.
package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Set is a set that the deployment owns.
type Set struct {
	Name     string
	UID      string
	Version  string // resourceVersion that was read
	Replicas int32  // spec.replicas
	Current  bool   // made from the deployment's template as it is now
	Deleting bool
	Created  time.Time
}

// Observed is what DecideDeployment read, at one moment.
type Observed struct {
	Replicas int32 // machines wanted
	Deleting bool  // the deployment itself is to go
	Sets     []Set // in any order
}

// Resize sets spec.replicas of one set, if it still has the UID and version that were seen.
type Resize struct {
	Name    string
	UID     string
	Version string
	From    int32
	To      int32
}

// Target names a set to delete, as it was seen.
type Target struct {
	Name    string
	UID     string
	Version string
}

// Decision says what to do next.
type Decision struct {
	Create  bool // make the set of the current template, with Observed.Replicas machines
	Resize  []Resize
	Delete  []Target
	Pending bool   // the template differs from the one set's: a rollout is due
	Why     string `json:"Plan"` // not Why: whoever embeds a Decision has a Why too, and JSON would drop this one
}

// Decide makes one set if there is none and gives it the size of the deployment. With a changed template it keeps the
// machines as they are, still follows Replicas, and reports Pending. A deployment that is to go deletes its sets.
func Decide(o Observed) Decision {
	sets := slices.Clone(o.Sets)
	slices.SortFunc(sets, func(a, b Set) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name)) })
	live := slices.DeleteFunc(sets, func(s Set) bool { return s.Deleting })
	if o.Deleting {
		d := Decision{Why: fmt.Sprintf("delete %d sets: the deployment is being deleted", len(live))}
		for _, s := range live {
			d.Delete = append(d.Delete, Target{s.Name, s.UID, s.Version})
		}
		return d
	}
	if len(live) == 0 {
		return Decision{Create: true, Why: fmt.Sprintf("create a set of %d machines: there is none", o.Replicas)}
	}
	set := governing(live)
	d := Decision{Pending: !set.Current}
	if set.Replicas != o.Replicas {
		d.Resize = []Resize{{set.Name, set.UID, set.Version, set.Replicas, o.Replicas}}
		d.Why = fmt.Sprintf("resize set %s %d→%d", set.Name, set.Replicas, o.Replicas)
		return d
	}
	d.Why = fmt.Sprintf("set %s has the wanted size %d", set.Name, o.Replicas)
	if d.Pending {
		d.Why += "; its template is not the deployment's any more"
	}
	return d
}

// governing returns the set that carries the deployment's size: the oldest one of the current template, else the newest.
// live is sorted by age and not empty.
func governing(live []Set) Set {
	if i := slices.IndexFunc(live, func(s Set) bool { return s.Current }); i >= 0 {
		return live[i]
	}
	return live[len(live)-1]
}
