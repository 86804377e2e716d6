package checker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"millwright/api/generated/clientset/versioned"
	"millwright/api/v1alpha1"
	"millwright/devstack/virtualcloud/admin"
)

const (
	// snapshotInterval is the time between two snapshots.
	snapshotInterval = 200 * time.Millisecond
	// runReadInterval is the time between two reads of the runs in Temporal. The interval is longer than
	// snapshotInterval because Temporal updates its lists of runs with a delay. The runs are read throughout a test
	// because Temporal may lose its data.
	runReadInterval = 5 * time.Second
	// maxSnapshotGap is the time without a successful snapshot after which all findings and bounds are forgotten: changes
	// in this time are unknown.
	maxSnapshotGap = time.Second
	// snapshotTimeout is the maximum time of one snapshot. Without a timeout, a stopped process of the stack would
	// block the snapshot.
	snapshotTimeout = 5 * time.Second
)

// Clients contains the clients that a Watcher uses.
type Clients struct {
	MachineClient versioned.Interface
	Kube          kubernetes.Interface
	Cloud         *admin.Client
	Temporal      client.Client
}

// Watcher watches one namespace of Machines. A node belongs to the namespace if the cloud has reported the node for an
// instance of the namespace, or if the node's name begins with the name of the namespace. The names of the namespace's
// deployments must begin with the name of the namespace.
type Watcher struct {
	clients        Clients
	namespace      string
	boundsTemplate SizeBounds // template for the SizeBounds of each deployment, which selects what is checked

	mu                 sync.Mutex
	nodeNames          map[string]bool // names of nodes that the cloud has reported for the namespace's instances
	findingTracker     *FindingTracker
	bounds             map[string]*SizeBounds // current bounds by name of the deployment
	expectedOrphanUIDs map[string]bool        // UIDs of machines whose instance a person has orphaned
	lastSnapshot       Snapshot               // last successful snapshot; compared with the next one
	lacksSnapshots     bool                   // no snapshot has succeeded for maxSnapshotGap
	isTearingDown      bool                   // BeginTeardown was called
	snapshotCount      int
	peakMachineCount   int // largest number of machines in one snapshot, including machines that are being deleted
	podDepartures      []PodDeparture
	reportedRuns       map[string]bool // failed runs that were already reported
	violations         []Violation
}

// NewWatcher returns a watcher. The parameter strict selects what is checked for each deployment.
func NewWatcher(sources Clients, namespace string, strict SizeBounds) *Watcher {
	return &Watcher{
		clients:            sources,
		namespace:          namespace,
		boundsTemplate:     strict,
		findingTracker:     NewFindingTracker(),
		nodeNames:          map[string]bool{},
		bounds:             map[string]*SizeBounds{},
		expectedOrphanUIDs: map[string]bool{},
		reportedRuns:       map[string]bool{},
	}
}

// Run takes snapshots and reads the workflow runs in Temporal until ctx is done.
func (w *Watcher) Run(ctx context.Context) {
	go w.pollWorkflowRuns(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(snapshotInterval):
		}
		s, err := w.TakeSnapshot(ctx)
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		if err != nil {
			if !w.lacksSnapshots && w.snapshotCount > 0 && time.Since(w.lastSnapshot.Time) > maxSnapshotGap {
				w.forgetFindings()
			}
		} else {
			if w.snapshotCount > 0 && s.Time.Sub(w.lastSnapshot.Time) > maxSnapshotGap {
				w.forgetBounds()
			}
			w.checkSnapshot(s)
		}
		w.mu.Unlock()
	}
}

// pollWorkflowRuns reads the workflow runs in Temporal until ctx is done.
func (w *Watcher) pollWorkflowRuns(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(runReadInterval):
		}
		if d, err := w.ReadWorkflowState(ctx); err == nil {
			w.AddRunViolations(d)
		}
	}
}

// AddRunViolations adds a violation for each run that failed, timed out or was terminated, and was not reported before.
func (w *Watcher) AddRunViolations(d WorkflowState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range FindFailedRuns(d) {
		if !w.reportedRuns[f.Object] {
			w.reportedRuns[f.Object] = true
			w.violations = append(w.violations, Violation{Finding: f, FirstSeen: time.Now(), ReportTime: time.Now()})
		}
	}
}

// forgetFindings drops findings and bounds after a time without snapshots.
func (w *Watcher) forgetFindings() {
	w.findingTracker.ForgetFindings()
	w.forgetBounds()
	w.lacksSnapshots = true
}

// forgetBounds removes all bounds until the deployments meet the bounds again. Since the last snapshot, a deployment
// may have had a spec with looser bounds.
func (w *Watcher) forgetBounds() {
	for _, b := range w.bounds {
		b.ForgetBounds()
	}
}

// checkSnapshot applies all checks to a snapshot.
func (w *Watcher) checkSnapshot(s Snapshot) {
	if w.snapshotCount++; !w.isTearingDown && w.snapshotCount > 1 {
		w.podDepartures = append(w.podDepartures, FindPodDepartures(w.lastSnapshot, s)...)
	}
	w.lastSnapshot, w.lacksSnapshots, w.peakMachineCount = s, false, max(w.peakMachineCount, len(s.Machines))
	found := append(FindDuplicateInstances(s), FindOrphanedInstances(s, w.expectedOrphanUIDs)...)
	found = append(found, FindMissingInstances(s)...)
	if !w.isTearingDown && !w.boundsTemplate.IgnoresBudgets {
		found = append(found, FindBrokenBudgets(s)...)
	}
	if w.boundsTemplate.ChecksNodeLoss {
		found = append(found, append(FindWronglyDrainedNodes(s), FindVanishedInstances(s)...)...)
	}
	if !w.isTearingDown {
		found = append(found, w.checkBounds(s)...)
	}
	w.violations = append(w.violations, w.findingTracker.AddFindings(s.Time, FindingDurationLimits(), found)...)
}

// checkBounds checks the numbers of machines and nodes of each deployment.
func (w *Watcher) checkBounds(s Snapshot) (found []Finding) {
	for _, d := range s.Deployments {
		b := w.bounds[d.Name]
		if b == nil {
			b = &SizeBounds{
				ChecksDeletingMachines: w.boundsTemplate.ChecksDeletingMachines,
				ChecksNodes:            w.boundsTemplate.ChecksNodes,
			}
			w.bounds[d.Name] = b
		}
		found = append(found, b.CheckSnapshot(s, &d)...)
	}
	return found
}

// ExpectOrphanedInstance records that a person has orphaned the instance of a machine.
func (w *Watcher) ExpectOrphanedInstance(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expectedOrphanUIDs[uid] = true
}

// ExpectedOrphanUIDs returns the UIDs of the machines whose instance a person has orphaned.
func (w *Watcher) ExpectedOrphanUIDs() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.expectedOrphanUIDs)
}

// BeginTeardown records that all objects are being deleted, so that numbers, budgets and pods are no longer checked.
func (w *Watcher) BeginTeardown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isTearingDown = true
}

// PodDepartures returns the pods that left the nodes of machines that were being deleted.
func (w *Watcher) PodDepartures() []PodDeparture {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.podDepartures)
}

// Violations returns all violations until now, and the number of snapshots.
func (w *Watcher) Violations() (violations []Violation, snapshots int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.violations), w.snapshotCount
}

// PeakMachineCount returns the largest number of machines in one snapshot, including machines that are being deleted.
func (w *Watcher) PeakMachineCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.peakMachineCount
}

// BoundsMatchSpecs reports whether the current bounds of all deployments already follow from their specs.
func (w *Watcher) BoundsMatchSpecs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.snapshotCount > 0 &&
		!slices.ContainsFunc(w.lastSnapshot.Deployments, func(d v1alpha1.MachineDeployment) bool {
			return w.bounds[d.Name] == nil || !w.bounds[d.Name].MatchesSpec(&d)
		})
}

// TakeSnapshot reads the current objects and instances. TakeSnapshot reads the instances before the Machines because
// the Machine of an instance is older than the instance.
func (w *Watcher) TakeSnapshot(ctx context.Context) (s Snapshot, err error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	api := w.clients.MachineClient.MachineV1alpha1()
	all := metav1.ListOptions{}
	instances, err := w.clients.Cloud.Instances(ctx)
	if err != nil {
		return s, err
	}
	s.Instances = w.selectOwnInstances(instances)
	before, err := api.MachineDeployments(w.namespace).List(ctx, all)
	if err != nil {
		return s, err
	}
	sets, err := api.MachineSets(w.namespace).List(ctx, all)
	if err != nil {
		return s, err
	}
	machines, err := api.Machines(w.namespace).List(ctx, all)
	if err != nil {
		return s, err
	}
	nodes, err := w.clients.Kube.CoreV1().Nodes().List(ctx, all)
	if err != nil {
		return s, err
	}
	later, err := api.Machines(w.namespace).List(ctx, all)
	if err != nil {
		return s, err
	}
	classes, err := api.MachineClasses(w.namespace).List(ctx, all)
	if err != nil {
		return s, err
	}
	pods, err := w.clients.Kube.CoreV1().Pods(w.namespace).List(ctx, all)
	if err != nil {
		return s, err
	}
	budgets, err := w.clients.Kube.PolicyV1().PodDisruptionBudgets(w.namespace).List(ctx, all)
	if err != nil {
		return s, err
	}
	after, err := api.MachineDeployments(w.namespace).List(ctx, all)
	if err != nil {
		return s, err
	}
	s.Time = time.Now()
	s.Sets = sets.Items
	s.Machines = machines.Items
	s.Classes = classes.Items
	s.Pods = pods.Items
	s.Budgets = budgets.Items
	s.DeploymentsAtStart = before.Items
	s.Deployments, s.IsConsistent = after.Items, describeSpecs(before.Items) == describeSpecs(after.Items)
	s.MachinesDeletedDuringSnapshot = machinesDeletedBetween(machines.Items, later.Items)
	for _, n := range nodes.Items {
		if strings.HasPrefix(n.Name, w.namespace+"-") || w.isReportedByCloud(n.Name) {
			s.Nodes = append(s.Nodes, n)
		}
	}
	return s, nil
}

// selectOwnInstances returns the instances of the namespace's classes, and stores the names of their nodes.
func (w *Watcher) selectOwnInstances(all []admin.Instance) (ours []admin.Instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range all {
		if strings.HasPrefix(i.Tags.Class, w.namespace+"/") {
			ours = append(ours, i)
			w.nodeNames[i.NodeName] = true
		}
	}
	return ours
}

func (w *Watcher) isReportedByCloud(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodeNames[node]
}

// machinesDeletedBetween returns the machines that are live in the first list, and missing or being deleted in the
// later list.
func machinesDeletedBetween(first, later []v1alpha1.Machine) map[types.UID]bool {
	all := map[types.UID]bool{}
	for _, m := range first {
		all[m.UID] = m.DeletionTimestamp == nil
	}
	for _, m := range later {
		all[m.UID] = all[m.UID] && m.DeletionTimestamp != nil
	}
	return all
}

// ReadWorkflowState reads the runs and schedules of the namespace from Temporal.
func (w *Watcher) ReadWorkflowState(ctx context.Context) (d WorkflowState, err error) {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	var page []byte
	for {
		answer, err := w.clients.Temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Query: fmt.Sprintf("MachineNamespace = %q", w.namespace), PageSize: 1000, NextPageToken: page,
		})
		if err != nil {
			return d, err
		}
		for _, e := range answer.Executions {
			d.Runs = append(d.Runs, WorkflowRun{ID: e.Execution.WorkflowId, Type: e.Type.Name, Status: e.Status})
		}
		if page = answer.NextPageToken; len(page) == 0 {
			break
		}
	}
	schedules, err := w.clients.Temporal.ScheduleClient().List(ctx, client.ScheduleListOptions{PageSize: 1000})
	if err != nil {
		return d, err
	}
	for schedules.HasNext() {
		schedule, err := schedules.Next()
		if err != nil {
			return d, err
		}
		if strings.Contains(schedule.ID, "/orphans/"+w.namespace+"/") {
			d.Schedules = append(d.Schedules, schedule.ID)
		}
	}
	return d, nil
}

// AwaitNoFindings takes a snapshot and calls the check each second until the check finds nothing twice in a row. If the
// check still finds something after the time within, AwaitNoFindings returns these findings as violations.
func (w *Watcher) AwaitNoFindings(
	ctx context.Context,
	within time.Duration,
	check func(Snapshot, WorkflowState) []Finding,
) ([]Violation, error) {
	begun := time.Now()
	for quiet := 0; ; {
		s, err := w.TakeSnapshot(ctx)
		var d WorkflowState
		if err == nil {
			d, err = w.ReadWorkflowState(ctx)
		}
		var found []Finding
		if err == nil {
			found = check(s, d)
		}
		if err == nil && len(found) == 0 {
			if quiet++; quiet == 2 {
				return nil, nil
			}
		} else {
			quiet = 0
		}
		if time.Since(begun) > within {
			if err != nil {
				return nil, fmt.Errorf("look at what is left after %s: %w", within, err)
			}
			var out []Violation
			for _, f := range found {
				out = append(out, Violation{Finding: f, FirstSeen: begun, ReportTime: s.Time})
			}
			return out, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// describeSpecs returns a text with the specs of the deployments.
func describeSpecs(items []v1alpha1.MachineDeployment) string {
	var text strings.Builder
	for _, d := range items {
		_, _ = fmt.Fprintf(&text, "%s=%d ", d.UID, d.Generation)
	}
	return text.String()
}
