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

// sizeGuarantee is the number of machines and nodes that the spec of a deployment guarantees at each moment.
type sizeGuarantee struct{ replicas, maxSurge, maxUnavailable int }

func (p sizeGuarantee) maxMachines() int { return p.replicas + p.maxSurge }
func (p sizeGuarantee) minNodes() int    { return p.replicas - p.maxUnavailable }

// sizeGuaranteeOfDeployment returns the guarantee of a deployment. As in Kubernetes, maxSurge is rounded up and
// maxUnavailable down; if both are 0, maxUnavailable is 1. The strategy Recreate guarantees no nodes during a rollout.
func sizeGuaranteeOfDeployment(d *v1alpha1.MachineDeployment) sizeGuarantee {
	p := sizeGuarantee{replicas: int(d.Spec.Replicas), maxSurge: 1}
	var bounds *v1alpha1.UpdateConfiguration
	switch s := d.Spec.Strategy; {
	case s.Type == v1alpha1.RecreateMachineDeploymentStrategyType:
		return sizeGuarantee{replicas: p.replicas, maxUnavailable: p.replicas}
	case s.Type == v1alpha1.InPlaceUpdateMachineDeploymentStrategyType && s.InPlaceUpdate != nil:
		bounds = &s.InPlaceUpdate.UpdateConfiguration
	case s.RollingUpdate != nil:
		bounds = &s.RollingUpdate.UpdateConfiguration
	}
	if bounds != nil {
		if n, err := intstr.GetScaledValueFromIntOrPercent(bounds.MaxSurge, p.replicas, true); err == nil &&
			bounds.MaxSurge != nil {
			p.maxSurge = n
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(bounds.MaxUnavailable, p.replicas, false)
		if err == nil && bounds.MaxUnavailable != nil {
			p.maxUnavailable = n
		}
	}
	if p.maxSurge == 0 && p.maxUnavailable == 0 {
		p.maxUnavailable = 1
	}
	return p
}

// SizeBounds checks the number of machines of one deployment over time. When the spec of the deployment changes, a
// looser bound applies at once. A stricter bound applies after the deployment has met it for the first time, because
// Millwright does not guarantee how soon this happens.
type SizeBounds struct {
	upper, lower *sizeGuarantee // guarantees that define the upper and the lower bound; nil if no bound applies yet
	// If ChecksDeletingMachines is true, CheckSnapshot includes machines that are being deleted in the number of
	// machines, and also checks the number of instances. ChecksDeletingMachines must be false if a person deletes
	// machines or machines fail: a machine that is being deleted or has failed may still exist when its replacement is
	// created.
	ChecksDeletingMachines bool
	// If ChecksNodes is true, CheckSnapshot also checks the number of serving nodes. ChecksNodes must be false while a
	// fault hits nodes.
	ChecksNodes bool
	// If IgnoresBudgets is true, disruption budgets are not checked, because drains reach their deadlines and then
	// delete pods.
	IgnoresBudgets bool
	// If ChecksNodeLoss is true, each machine that is not being removed must also keep its node and its instance.
	// ChecksNodeLoss must be false if a person or another program deletes nodes or instances.
	ChecksNodeLoss bool
}

// MatchesSpec reports whether both current bounds already follow from the spec of the deployment.
func (b *SizeBounds) MatchesSpec(d *v1alpha1.MachineDeployment) bool {
	wanted := sizeGuaranteeOfDeployment(d)
	return b.upper != nil && b.lower != nil && *b.upper == wanted && *b.lower == wanted
}

// ForgetBounds removes both bounds until the deployment meets the bounds again. Call ForgetBounds after a time without
// snapshots.
func (b *SizeBounds) ForgetBounds() { b.upper, b.lower = nil, nil }

// CheckSnapshot returns the findings in a snapshot, and updates the current bounds.
func (b *SizeBounds) CheckSnapshot(s Snapshot, d *v1alpha1.MachineDeployment) (found []Finding) {
	for _, began := range s.DeploymentsAtStart {
		if began.UID == d.UID {
			b.loosenBounds(sizeGuaranteeOfDeployment(&began))
		}
	}
	wanted := sizeGuaranteeOfDeployment(d)
	b.loosenBounds(wanted)
	if !s.IsConsistent || d.DeletionTimestamp != nil {
		return nil
	}
	v := newDeploymentView(s, d)
	existing, places := v.liveMachineCount, v.expectedMachineCount
	if b.ChecksDeletingMachines {
		existing, places = v.liveMachineCount+v.deletingMachineCount, v.expectedMachineCount+v.deletingMachineCount
	}
	if b.upper != nil && existing > b.upper.maxMachines() {
		found = append(
			found,
			Finding{
				CheckTooManyMachines,
				d.Name,
				fmt.Sprintf(
					"%d machines and %d that are being deleted; %d replicas and maxSurge %d allow %d; wanted are %d",
					v.liveMachineCount,
					v.deletingMachineCount,
					b.upper.replicas,
					b.upper.maxSurge,
					b.upper.maxMachines(),
					wanted.replicas,
				),
			},
		)
	}
	if n := len(s.InstancesOfDeployment(d)); b.ChecksDeletingMachines && b.upper != nil && n > b.upper.maxMachines() {
		found = append(
			found,
			Finding{
				CheckTooManyInstances,
				d.Name,
				fmt.Sprintf("%d instances; %d replicas and maxSurge %d allow %d; wanted are %d",
					n, b.upper.replicas, b.upper.maxSurge, b.upper.maxMachines(), wanted.replicas),
			},
		)
	}
	if b.ChecksNodes && b.lower != nil && v.servingNodeCount < b.lower.minNodes() {
		found = append(
			found,
			Finding{
				CheckTooFewNodes,
				d.Name,
				fmt.Sprintf(
					"%d serving nodes of machines that are not being deleted; %d replicas and maxUnavailable %d need %d; wanted are %d; %s",
					v.servingNodeCount,
					b.lower.replicas,
					b.lower.maxUnavailable,
					b.lower.minNodes(),
					wanted.replicas,
					strings.Join(v.machinesNotServing, ", "),
				),
			},
		)
	}
	b.tightenBounds(wanted, v, places)
	return found
}

// loosenBounds applies a wanted bound at once if it is looser than the current bound.
func (b *SizeBounds) loosenBounds(wanted sizeGuarantee) {
	if b.upper != nil && wanted.maxMachines() >= b.upper.maxMachines() {
		b.upper = &wanted
	}
	if b.lower != nil && wanted.minNodes() <= b.lower.minNodes() {
		b.lower = &wanted
	}
}

// tightenBounds applies a wanted bound as soon as the deployment meets it.
func (b *SizeBounds) tightenBounds(wanted sizeGuarantee, v deploymentView, places int) {
	if v.setsMatchSpec && places <= wanted.maxMachines() {
		b.upper = &wanted
	}
	if v.setsMatchSpec && v.hasNoSurplus && v.servingNodeCount >= wanted.minNodes() {
		b.lower = &wanted
	}
}

// deploymentView has the numbers of a deployment's machines and nodes in one snapshot.
type deploymentView struct {
	liveMachineCount, deletingMachineCount int      // numbers of machines that are not being deleted, and that are being deleted
	expectedMachineCount                   int      // number of live machines plus number of machines that are still to be created
	servingNodeCount                       int      // number of live machines' nodes that accept pods
	machinesNotServing                     []string // machines whose node accepts no pods, each with the reason
	setsMatchSpec                          bool     // all sets have the size that follows from the deployment's current spec
	hasNoSurplus                           bool     // no set has machines that it still has to delete
}

// newDeploymentView uses the status of sets only to find out when a new bound applies, and never to find out which
// machines exist.
func newDeploymentView(s Snapshot, d *v1alpha1.MachineDeployment) deploymentView {
	v := deploymentView{setsMatchSpec: true, hasNoSurplus: true}
	of := s.InstancesByMachineUID()
	live := map[types.UID]int{}
	for _, m := range s.MachinesOfDeployment(d) {
		if m.DeletionTimestamp != nil {
			v.deletingMachineCount++
			v.machinesNotServing = append(
				v.machinesNotServing,
				m.Name+" is being deleted since "+m.DeletionTimestamp.Format(time.TimeOnly),
			)
			continue
		}
		v.liveMachineCount++
		if owner := metav1.GetControllerOf(&m); owner != nil {
			live[owner.UID]++
		}
		if why := notServingReason(s, m, of[string(m.UID)]); why == "" {
			v.servingNodeCount++
		} else {
			v.machinesNotServing = append(v.machinesNotServing, m.Name+" "+why)
		}
	}
	v.expectedMachineCount = v.liveMachineCount
	for _, set := range s.SetsOfDeployment(d) {
		size, seen, here := int(set.Spec.Replicas), int(set.Status.ObservedReplicas), live[set.UID]
		v.expectedMachineCount += max(size, seen, here) - here
		v.hasNoSurplus = v.hasNoSurplus && here <= size && seen == size
		v.setsMatchSpec = v.setsMatchSpec &&
			(size == 0 || set.Annotations[v1alpha1.AnnotationDesiredReplicas] == strconv.Itoa(int(d.Spec.Replicas)))
	}
	return v
}

// notServingReason returns why the node of a machine accepts no pods; empty if the node accepts pods. The cloud's list
// is read before the Machines, so the list may lack the instance of a new Machine. If the list lacks the instance, the
// provider ID of the Machine identifies the node. The node of a machine that is updated in place is cordoned.
func notServingReason(s Snapshot, m v1alpha1.Machine, instances []admin.Instance) string {
	var node *corev1.Node
	for _, id := range append(providerIDs(instances), m.Spec.ProviderID) {
		if node == nil && id != "" {
			node = s.NodeByProviderID(id)
		}
	}
	switch {
	case s.MachinesDeletedDuringSnapshot[m.UID]:
		return ""
	case node == nil:
		return "has no node"
	case !IsNodeReady(node):
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
