package checker

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"millwright/api/v1alpha1"
	"millwright/devstack/virtualcloud/admin"
)

// sizePromise is what the spec of a deployment promises at each moment.
type sizePromise struct{ replicas, surge, unavailable int }

func (p sizePromise) mostMachines() int { return p.replicas + p.surge }
func (p sizePromise) leastNodes() int   { return p.replicas - p.unavailable }

// promiseOf returns the promise of a deployment. As in Kubernetes, maxSurge is rounded up and maxUnavailable down; if
// both are 0, maxUnavailable is 1. The strategy Recreate promises no nodes during a rollout.
func promiseOf(d *v1alpha1.MachineDeployment) sizePromise {
	p := sizePromise{replicas: int(d.Spec.Replicas), surge: 1}
	var bounds *v1alpha1.UpdateConfiguration
	switch s := d.Spec.Strategy; {
	case s.Type == v1alpha1.RecreateMachineDeploymentStrategyType:
		return sizePromise{replicas: p.replicas, unavailable: p.replicas}
	case s.Type == v1alpha1.InPlaceUpdateMachineDeploymentStrategyType && s.InPlaceUpdate != nil:
		bounds = &s.InPlaceUpdate.UpdateConfiguration
	case s.RollingUpdate != nil:
		bounds = &s.RollingUpdate.UpdateConfiguration
	}
	if bounds != nil {
		if n, err := intstr.GetScaledValueFromIntOrPercent(bounds.MaxSurge, p.replicas, true); err == nil &&
			bounds.MaxSurge != nil {
			p.surge = n
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(bounds.MaxUnavailable, p.replicas, false)
		if err == nil && bounds.MaxUnavailable != nil {
			p.unavailable = n
		}
	}
	if p.surge == 0 && p.unavailable == 0 {
		p.unavailable = 1
	}
	return p
}

// Bounds judges the number of machines of one deployment over time. When the deployment's spec changes, a looser bound
// is in force at once. A stricter bound is in force from the moment at which it is first met, because Millwright does
// not promise how soon it meets a bound.
type Bounds struct {
	above, below *sizePromise // promises whose upper and lower bounds are in force; nil: none yet
	// If Leaving is true, Judge also counts machines that are being deleted, and instances. Leaving must be false if a
	// person deletes machines or machines fail, because such a machine may still exist when its substitute is created.
	Leaving bool
	// If Nodes is true, Judge also judges the number of serving nodes. It must be false while something hurts nodes.
	Nodes bool
	// Forced says that disruption budgets are not judged, because drains reach their deadlines and then delete pods.
	Forced bool
	// If Alone is true, Judge also judges whether each machine that stays keeps its node and its instance. It must be
	// false if somebody else deletes nodes or instances.
	Alone bool
}

// InForce reports whether both bounds in force are those of the deployment's spec.
func (b *Bounds) InForce(d *v1alpha1.MachineDeployment) bool {
	wanted := promiseOf(d)
	return b.above != nil && b.below != nil && *b.above == wanted && *b.below == wanted
}

// Forget puts the bounds out of force until they are met again. Call it after a time without snapshots.
func (b *Bounds) Forget() { b.above, b.below = nil, nil }

// Judge returns the findings about a snapshot, and updates the bounds in force.
func (b *Bounds) Judge(s Snapshot, d *v1alpha1.MachineDeployment) (found []Finding) {
	for _, began := range s.Began {
		if began.UID == d.UID {
			b.loosen(promiseOf(&began))
		}
	}
	wanted := promiseOf(d)
	b.loosen(wanted)
	if !s.Settled || d.DeletionTimestamp != nil {
		return nil
	}
	v := viewOf(s, d)
	existing, places := v.live, v.places
	if b.Leaving {
		existing, places = v.live+v.going, v.places+v.going
	}
	if b.above != nil && existing > b.above.mostMachines() {
		found = append(
			found,
			Finding{
				CheckTooMany,
				d.Name,
				fmt.Sprintf("%d machines and %d that are being deleted; %d replicas and maxSurge %d allow %d; wanted are %d",
					v.live, v.going, b.above.replicas, b.above.surge, b.above.mostMachines(), wanted.replicas),
			},
		)
	}
	if n := len(s.InstancesFor(d)); b.Leaving && b.above != nil && n > b.above.mostMachines() {
		found = append(
			found,
			Finding{CheckSurplus, d.Name, fmt.Sprintf("%d instances; %d replicas and maxSurge %d allow %d; wanted are %d",
				n, b.above.replicas, b.above.surge, b.above.mostMachines(), wanted.replicas)},
		)
	}
	if b.Nodes && b.below != nil && v.serving < b.below.leastNodes() {
		found = append(
			found,
			Finding{
				CheckTooFew,
				d.Name,
				fmt.Sprintf(
					"%d serving nodes of machines that are not being deleted; %d replicas and maxUnavailable %d need %d; wanted are %d; %s",
					v.serving,
					b.below.replicas,
					b.below.unavailable,
					b.below.leastNodes(),
					wanted.replicas,
					strings.Join(v.idle, ", "),
				),
			},
		)
	}
	b.tighten(wanted, v, places)
	return found
}

// loosen puts bounds that allow more in force at once.
func (b *Bounds) loosen(wanted sizePromise) {
	if b.above != nil && wanted.mostMachines() >= b.above.mostMachines() {
		b.above = &wanted
	}
	if b.below != nil && wanted.leastNodes() <= b.below.leastNodes() {
		b.below = &wanted
	}
}

// tighten puts bounds that allow less in force as soon as they are met.
func (b *Bounds) tighten(wanted sizePromise, v deploymentView, places int) {
	if v.sized && places <= wanted.mostMachines() {
		b.above = &wanted
	}
	if v.sized && v.settled && v.serving >= wanted.leastNodes() {
		b.below = &wanted
	}
}

// deploymentView is what one snapshot shows of a deployment.
type deploymentView struct {
	live, going int      // numbers of machines: not being deleted, being deleted
	places      int      // live machines, and machines that are still to be created
	serving     int      // nodes of live machines that take pods
	idle        []string // machines whose node takes no pods, each with the reason
	sized       bool     // all sets have the size that follows from what is wanted now
	settled     bool     // no set has machines that it must still delete
}

// viewOf uses the status of sets only to learn when a new bound is in force, never to learn what exists.
func viewOf(s Snapshot, d *v1alpha1.MachineDeployment) deploymentView {
	v := deploymentView{sized: true, settled: true}
	of := s.InstancesOf()
	live := map[types.UID]int{}
	for _, m := range s.MachinesOf(d) {
		if m.DeletionTimestamp != nil {
			v.going++
			v.idle = append(v.idle, m.Name+" is being deleted since "+m.DeletionTimestamp.Format(time.TimeOnly))
			continue
		}
		v.live++
		if owner := metav1.GetControllerOf(&m); owner != nil {
			live[owner.UID]++
		}
		if why := whyIdle(s, m, of[string(m.UID)]); why == "" {
			v.serving++
		} else {
			v.idle = append(v.idle, m.Name+" "+why)
		}
	}
	v.places = v.live
	for _, set := range s.SetsOf(d) {
		size, seen, here := int(set.Spec.Replicas), int(set.Status.ObservedReplicas), live[set.UID]
		v.places += max(size, seen, here) - here
		v.settled = v.settled && here <= size && seen == size
		v.sized = v.sized &&
			(size == 0 || set.Annotations[v1alpha1.AnnotationDesiredReplicas] == strconv.Itoa(int(d.Spec.Replicas)))
	}
	return v
}

// whyIdle says why the node of a machine takes no pods; empty: it takes pods. The instance may be missing in the
// cloud's list, which is read first: then the Machine's provider ID names the node. The node of a machine that is
// updated in place is cordoned.
func whyIdle(s Snapshot, m v1alpha1.Machine, instances []admin.Instance) string {
	var node *corev1.Node
	for _, id := range append(providerIDs(instances), m.Spec.ProviderID) {
		if node == nil && id != "" {
			node = s.NodeBy(id)
		}
	}
	switch {
	case s.Left[m.UID]:
		return ""
	case node == nil:
		return "has no node"
	case !Ready(node):
		return fmt.Sprintf("(%s) is not ready: %s", m.Status.CurrentStatus.Phase, describeReadiness(node))
	case node.Spec.Unschedulable:
		return "is cordoned"
	default:
		return ""
	}
}

// describeReadiness describes the condition Ready of a node: status, reason and transition time.
func describeReadiness(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return fmt.Sprintf("Ready is %s, %s, since %s; created %s",
				c.Status, c.Reason, c.LastTransitionTime.Format(time.TimeOnly), node.CreationTimestamp.Format(time.TimeOnly))
		}
	}
	return "no condition Ready; created " + node.CreationTimestamp.Format(time.TimeOnly)
}

func providerIDs(instances []admin.Instance) (ids []string) {
	for _, i := range instances {
		ids = append(ids, i.ProviderID)
	}
	return ids
}
