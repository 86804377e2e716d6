// Package checker watches a running Millwright from outside and reports violations, such as two instances of one
// machine, an instance without a Machine, or more machines than allowed. The package reads the API server, the cloud
// and Temporal with its own clients. The package uses a status written by Millwright only for facts that no other
// source has.
//
// Each check is a pure function of a snapshot. A Watcher takes the snapshots.
package checker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"millwright/api/v1alpha1"
	"millwright/devstack/virtualcloud/admin"
)

// Snapshot has the objects of one namespace of Machines, and the instances of its classes, at one time.
type Snapshot struct {
	Time        time.Time
	Deployments []v1alpha1.MachineDeployment
	Sets        []v1alpha1.MachineSet
	Machines    []v1alpha1.Machine
	Classes     []v1alpha1.MachineClass
	Nodes       []corev1.Node
	Pods        []corev1.Pod
	Budgets     []policyv1.PodDisruptionBudget
	Instances   []admin.Instance // instances of the namespace's classes; read before the Machines

	// IsConsistent is true if no deployment changed while the snapshot was taken. If a deployment changed, its bounds
	// cannot be checked.
	IsConsistent bool
	// DeploymentsAtStart are the deployments at the start of the snapshot, because their specs may have had looser
	// bounds.
	DeploymentsAtStart []v1alpha1.MachineDeployment

	// MachinesDeletedDuringSnapshot are the machines whose deletion began while the snapshot was taken. A snapshot reads
	// nodes after machines. For a machine in MachinesDeletedDuringSnapshot, a snapshot may contain no deletion timestamp,
	// although its node is already cordoned.
	MachinesDeletedDuringSnapshot map[types.UID]bool
}

// MachineByUID returns the machine with a UID; nil if no machine has the UID.
func (s Snapshot) MachineByUID(uid string) *v1alpha1.Machine {
	i := slices.IndexFunc(s.Machines, func(m v1alpha1.Machine) bool { return string(m.UID) == uid })
	if i < 0 {
		return nil
	}
	return &s.Machines[i]
}

// InstancesByMachineUID returns the instances of each machine UID.
func (s Snapshot) InstancesByMachineUID() map[string][]admin.Instance {
	of := map[string][]admin.Instance{}
	for _, i := range s.Instances {
		of[i.Tags.MachineUID] = append(of[i.Tags.MachineUID], i)
	}
	return of
}

// NodeOfInstance returns the node of an instance; nil if the instance has no node.
func (s Snapshot) NodeOfInstance(i admin.Instance) *corev1.Node {
	return s.NodeByProviderID(i.ProviderID)
}

// NodeByProviderID returns the node with this provider ID; nil if there is none.
func (s Snapshot) NodeByProviderID(providerID string) *corev1.Node {
	at := slices.IndexFunc(s.Nodes, func(n corev1.Node) bool { return n.Spec.ProviderID == providerID })
	if at < 0 {
		return nil
	}
	return &s.Nodes[at]
}

// MachinesOfDeployment returns the machines that match a deployment's selector.
func (s Snapshot) MachinesOfDeployment(d *v1alpha1.MachineDeployment) []v1alpha1.Machine {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(
		slices.Clone(s.Machines),
		func(m v1alpha1.Machine) bool { return !selector.Matches(labels.Set(m.Labels)) },
	)
}

// InstancesOfDeployment returns the instances of a deployment's machines, also of machines that do not exist any more.
// InstancesOfDeployment finds the instances by the name of the machine, which begins with the deployment's name. The
// names of other deployments must not begin with the name of this deployment.
func (s Snapshot) InstancesOfDeployment(d *v1alpha1.MachineDeployment) []admin.Instance {
	return slices.DeleteFunc(
		slices.Clone(s.Instances),
		func(i admin.Instance) bool { return !strings.HasPrefix(i.Tags.MachineName, d.Name+"-") },
	)
}

// SetsOfDeployment returns the sets that a deployment controls.
func (s Snapshot) SetsOfDeployment(d *v1alpha1.MachineDeployment) []v1alpha1.MachineSet {
	return slices.DeleteFunc(
		slices.Clone(s.Sets),
		func(set v1alpha1.MachineSet) bool { return !metav1.IsControlledBy(&set, d) },
	)
}

// IsNodeReady reports whether the condition Ready of a node is True; false for nil.
func IsNodeReady(n *corev1.Node) bool {
	return n != nil && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Finding is one fact in one snapshot that must not last.
type Finding struct {
	Check       string // name of the check
	Object      string // name of the object
	Observation string
}

// Violation is a finding that lasted longer than its check allows.
type Violation struct {
	Finding
	FirstSeen  time.Time // time of the first snapshot with the finding
	ReportTime time.Time // time of the first snapshot in which the finding had lasted too long
}

func (v Violation) String() string {
	return fmt.Sprintf(
		"%s %s: %s: %s (since %s)",
		v.ReportTime.Format(time.TimeOnly),
		v.Check,
		v.Object,
		v.Observation,
		v.FirstSeen.Format("15:04:05.0"),
	)
}

// findingKey identifies a finding in several snapshots.
type findingKey struct{ check, object string }

// FindingTracker turns findings that last too long into violations. Use NewFindingTracker, because the zero
// value is not usable.
type FindingTracker struct {
	firstSeen    map[findingKey]time.Time
	reportedKeys map[findingKey]bool
}

// NewFindingTracker returns FindingTracker without findings.
func NewFindingTracker() *FindingTracker {
	return &FindingTracker{firstSeen: map[findingKey]time.Time{}, reportedKeys: map[findingKey]bool{}}
}

// AddFindings records all findings of a snapshot and returns the new violations. A violation is a finding that was in
// every snapshot for longer than the limit of its check. AddFindings returns a violation only once while the finding
// lasts.
func (l *FindingTracker) AddFindings(at time.Time, limits map[string]time.Duration, findings []Finding) []Violation {
	var out []Violation
	present := map[findingKey]bool{}
	for _, f := range findings {
		k := findingKey{f.Check, f.Object}
		present[k] = true
		if _, known := l.firstSeen[k]; !known {
			l.firstSeen[k] = at
		}
		if at.Sub(l.firstSeen[k]) >= limits[f.Check] && !l.reportedKeys[k] {
			l.reportedKeys[k] = true
			out = append(out, Violation{Finding: f, FirstSeen: l.firstSeen[k], ReportTime: at})
		}
	}
	maps.DeleteFunc(l.firstSeen, func(k findingKey, _ time.Time) bool { return !present[k] })
	maps.DeleteFunc(l.reportedKeys, func(k findingKey, _ bool) bool { return !present[k] })
	return out
}

// ForgetFindings drops all findings. Call ForgetFindings after a time without snapshots.
func (l *FindingTracker) ForgetFindings() {
	l.firstSeen = map[findingKey]time.Time{}
	l.reportedKeys = map[findingKey]bool{}
}
