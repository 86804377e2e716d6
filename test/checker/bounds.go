package checker

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
)

// promise is what the spec of a deployment promises at each moment.
type promise struct{ replicas, surge, unavailable int }

func (p promise) most() int  { return p.replicas + p.surge }
func (p promise) least() int { return p.replicas - p.unavailable }

// promised reads the promise of a deployment, with the roundings of Kubernetes: surge up, unavailable down, and one unavailable if
// both are none.
func promised(d *v1alpha1.MachineDeployment) promise {
	p := promise{replicas: int(d.Spec.Replicas), surge: 1, unavailable: 1}
	if r := d.Spec.Strategy.RollingUpdate; r != nil {
		if n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxSurge, p.replicas, true); err == nil && r.MaxSurge != nil {
			p.surge = n
		}
		if n, err := intstr.GetScaledValueFromIntOrPercent(r.MaxUnavailable, p.replicas, false); err == nil && r.MaxUnavailable != nil {
			p.unavailable = n
		}
	}
	if p.surge == 0 && p.unavailable == 0 {
		p.unavailable = 1
	}
	return p
}

// Bounds judges the number of machines of one deployment over time. When what is wanted changes, each bound that is looser than the
// former one counts at once, and each that is stricter from the moment on at which it is first met: how fast that has to be is no
// promise.
type Bounds struct {
	above, below *promise // whose bounds are in force; nil: none yet
	// Leaving counts machines that are being deleted as well, and judges the number of instances. A machine that a person deletes, or that failed, may still be there when
	// its substitute is made, so it must be false where that happens.
	Leaving bool
	// Nodes judges the number of ready nodes. It must be false while something hurts nodes.
	Nodes bool
}

// Forget puts the bounds out of force until they are met again: nothing was seen for a while.
func (b *Bounds) Forget() { b.above, b.below = nil, nil }

// Judge returns what a snapshot breaks, and takes note of the snapshot.
func (b *Bounds) Judge(s Snapshot, d *v1alpha1.MachineDeployment) (found []Finding) {
	if !s.Settled || d.DeletionTimestamp != nil {
		return nil
	}
	wanted := promised(d)
	b.loosen(wanted)
	v := viewOf(s, d)
	existing, places := v.live, v.places
	if b.Leaving {
		existing, places = v.live+v.going, v.places+v.going
	}
	if b.above != nil && existing > b.above.most() {
		found = append(found, Finding{CheckTooMany, d.Name, fmt.Sprintf("%d machines and %d that are being deleted; %d replicas and maxSurge %d allow %d; wanted are %d",
			v.live, v.going, b.above.replicas, b.above.surge, b.above.most(), wanted.replicas)})
	}
	if n := len(s.InstancesFor(d)); b.Leaving && b.above != nil && n > b.above.most() {
		found = append(found, Finding{CheckSurplus, d.Name, fmt.Sprintf("%d instances; %d replicas and maxSurge %d allow %d; wanted are %d",
			n, b.above.replicas, b.above.surge, b.above.most(), wanted.replicas)})
	}
	if b.Nodes && b.below != nil && v.ready < b.below.least() {
		found = append(found, Finding{CheckTooFew, d.Name, fmt.Sprintf("%d ready nodes of machines that are not being deleted; %d replicas and maxUnavailable %d need %d; wanted are %d",
			v.ready, b.below.replicas, b.below.unavailable, b.below.least(), wanted.replicas)})
	}
	b.tighten(wanted, v, places)
	return found
}

// loosen puts bounds that allow more in force at once.
func (b *Bounds) loosen(wanted promise) {
	if b.above != nil && wanted.most() >= b.above.most() {
		b.above = &wanted
	}
	if b.below != nil && wanted.least() <= b.below.least() {
		b.below = &wanted
	}
}

// tighten puts bounds that allow less in force as soon as they are met.
func (b *Bounds) tighten(wanted promise, v view, places int) {
	if v.sized && places <= wanted.most() {
		b.above = &wanted
	}
	if v.sized && v.settled && v.ready >= wanted.least() {
		b.below = &wanted
	}
}

// view is what one snapshot shows of a deployment.
type view struct {
	live, going int  // machines
	places      int  // that live machines hold, or those will that are yet to be made
	ready       int  // ready nodes of live machines
	sized       bool // all sets have the size that follows from what is wanted now
	settled     bool // no set has machines left to delete
}

// viewOf uses the status of sets only to learn when a new bound is in force, never to learn what exists.
func viewOf(s Snapshot, d *v1alpha1.MachineDeployment) view {
	v := view{sized: true, settled: true}
	of := s.InstancesOf()
	live := map[types.UID]int{}
	for _, m := range s.MachinesOf(d) {
		if m.DeletionTimestamp != nil {
			v.going++
			continue
		}
		v.live++
		if owner := metav1.GetControllerOf(&m); owner != nil {
			live[owner.UID]++
		}
		for _, i := range of[string(m.UID)] {
			if Ready(s.NodeOf(i)) {
				v.ready++
				break
			}
		}
	}
	v.places = v.live
	for _, set := range s.SetsOf(d) {
		size, seen, here := int(set.Spec.Replicas), int(set.Status.ObservedReplicas), live[set.UID]
		v.places += max(size, seen, here) - here
		v.settled = v.settled && here <= size && seen == size
		v.sized = v.sized && (size == 0 || set.Annotations[v1alpha1.AnnotationDesiredReplicas] == strconv.Itoa(int(d.Spec.Replicas)))
	}
	return v
}
