//go:build integration

package capi

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// machineCounts are the smallest and the largest number of machines that are not being deleted, of all samples.
type machineCounts struct{ samples, least, most int }

// sampleMachines counts the machines of a pool that are not being deleted, every 100 ms. The returned function ends
// this, and returns the counts.
func (p pool) sampleMachines(t *testing.T) (stop func() machineCounts) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var counts machineCounts
	over := make(chan struct{})
	go func() {
		defer close(over)
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			list, err := p.resourceClient(machineResource).List(ctx, metav1.ListOptions{LabelSelector: "pool=" + p.poolName})
			if err != nil {
				continue
			}
			active := 0
			for i := range list.Items {
				if list.Items[i].GetDeletionTimestamp() == nil {
					active++
				}
			}
			if counts.samples == 0 {
				counts.least = active
			}
			counts = machineCounts{counts.samples + 1, min(counts.least, active), max(counts.most, active)}
		}
	}()
	end := func() machineCounts {
		cancel()
		<-over
		return counts
	}
	t.Cleanup(func() { end() })
	return end
}

// countMachineWrites returns how many Machines of the namespace were created and deleted with success, by user. Cluster
// API creates a Machine with a patch.
func (s testNamespace) countMachineWrites(t *testing.T) (created, deleted map[string]int) {
	t.Helper()
	created, deleted = map[string]int{}, map[string]int{}
	for _, request := range testRig.AuditedRequests(t, func(r rig.AuditedRequest) bool {
		return r.ObjectRef.Resource == machineResource.Resource && r.ObjectRef.APIGroup == machineResource.Group &&
			r.ObjectRef.Subresource == "" && r.ObjectRef.Namespace == s.name
	}) {
		switch {
		case request.ResponseStatus.Code == http.StatusCreated:
			created[request.User.Username]++
		case request.Verb == "delete" && request.ResponseStatus.Code == http.StatusOK:
			deleted[request.User.Username]++
		}
	}
	return created, deleted
}

// setClusterPaused pauses or resumes the Cluster of the namespace.
func (s testNamespace) setClusterPaused(t *testing.T, paused bool) {
	t.Helper()
	s.applyMergePatch(t, clusterResource, s.name, fmt.Sprintf(`{"spec":{"paused":%t}}`, paused))
}

// setWatchFilter sets the label that selects the controller of the pool.
func (p pool) setWatchFilter(t *testing.T, filter string) {
	t.Helper()
	p.patchPool(t, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, component.WatchFilterLabel, filter))
}

// awaitActiveMachines waits until the count of the machines that are not being deleted holds.
func (p pool) awaitActiveMachines(t *testing.T, what string, holds func(active int) bool) {
	t.Helper()
	rig.Eventually(t, what, func() (bool, any) {
		active := 0
		for _, m := range p.listMachines(t) {
			if m.GetDeletionTimestamp() == nil {
				active++
			}
		}
		return holds(active), active
	})
}

// takeOver waits until Millwright asks for a pause, and pauses the Cluster until Millwright has the set or deployment.
func (p pool) takeOver(t *testing.T) {
	t.Helper()
	rig.Eventually(t, "Millwright asks for a pause", func() (bool, any) {
		status, reason, message := p.readCondition(t, "Blocked")
		return status == "True" && reason == "HandOver", message
	})
	p.setClusterPaused(t, true)
	p.awaitFinalizer(t, millwrightFinalizer)
	p.setClusterPaused(t, false)
}

// newStartedNamespace makes a Cluster of its own, and waits until its control plane runs.
func newStartedNamespace(t *testing.T, name string) testNamespace {
	t.Helper()
	newNamespace(t, name, "plane.yaml")
	return awaitStartedNamespace(t, name)
}

// The label of a set changes while Cluster API's controller or Millwright scales it, in both directions, and also while
// no worker runs. Machines are counted every 100 ms: never more machines than wanted are deleted or created.
func TestASetIsHandedOverInTheMiddle(t *testing.T) {
	s := newStartedNamespace(t, "flipped")
	const most = 30
	p := s.newPool(t, "flipped", 0)
	p.handOver(t, component.UpstreamFilterValue, upstreamSetFinalizer)
	for _, step := range []struct {
		name         string
		from, to     int
		takes        bool // Millwright takes the set over; otherwise Cluster API's controller does
		withoutAgent bool // the worker is stopped while the label changes
	}{
		{"Cluster API creates, and Millwright takes over", 0, most, true, false},
		{"Millwright deletes, and Cluster API takes over", most, 10, false, false},
		{"Cluster API creates, and Millwright's worker is stopped", 10, most, true, true},
		{"Millwright deletes, and Cluster API takes over again", most, 10, false, false},
		{"Cluster API deletes, and Millwright takes over", 10, 3, true, false},
		{"Millwright creates, and Cluster API takes over", 3, most, false, false},
	} {
		created, deleted := s.countMachineWrites(t)
		stop := p.sampleMachines(t)
		p.scale(t, step.to)
		begun := func(active int) bool { return active != step.from }
		p.awaitActiveMachines(t, step.name+": the first machine", begun)
		if step.withoutAgent {
			require.NoError(t, testRig.Stack.KillComponent(t.Context(), component.Worker))
		}
		if step.takes {
			p.setWatchFilter(t, component.MillwrightFilterValue)
			if step.withoutAgent {
				p.awaitActiveMachines(t, "Cluster API's controller goes on", func(active int) bool { return active == step.to })
				require.NoError(t, testRig.Stack.RestartComponent(t.Context(), component.Worker))
			}
			p.takeOver(t)
		} else {
			p.setWatchFilter(t, component.UpstreamFilterValue)
			p.awaitFinalizer(t, upstreamSetFinalizer)
		}
		p.awaitObjectCounts(t, step.to)
		assert.Len(t, p.getObject(t, machineSetResource, p.poolName).GetFinalizers(), 1, "one controller")
		p.awaitReplicaStatus(t, step.to)
		counts := stop()
		createdAfter, deletedAfter := s.countMachineWrites(t)
		t.Logf(
			"%s: %d→%d, %d samples, %d to %d machines; created before %v, after %v; deleted before %v, after %v",
			step.name,
			step.from,
			step.to,
			counts.samples,
			counts.least,
			counts.most,
			created,
			createdAfter,
			deleted,
			deletedAfter,
		)
		assert.GreaterOrEqual(t, counts.least, min(step.from, step.to), step.name)
		assert.LessOrEqual(t, counts.most, max(step.from, step.to), step.name)
		assert.Equal(t, max(step.to-step.from, 0), sum(createdAfter)-sum(created), step.name)
		assert.Equal(t, max(step.from-step.to, 0), sum(deletedAfter)-sum(deleted), step.name)
	}
}

// The label of a deployment changes in the middle of a rollout of Cluster API's controller, then in the middle of a
// rollout of Millwright. Both rollouts go on under the new controller, and the bounds hold at each event.
func TestADeploymentIsHandedOverInTheMiddleOfItsRollout(t *testing.T) {
	s := newStartedNamespace(t, "turned")
	for _, template := range []string{"first", "second", "third"} {
		s.newInfrastructureTemplate(t, template)
	}
	f := s.newFleet(t, "turned", 4, append(
		rolloutReplacement("{strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}}"),
		"DevMachineTemplate, name: CLUSTER", "DevMachineTemplate, name: first",
	)...)
	f.awaitMachinesOfTemplate(t, "first", 4)
	// core's filter also applies to the sets that core makes, and their labels come from the template
	f.patchPool(t, fmt.Sprintf(
		`{"spec":{"template":{"metadata":{"labels":{%q:%q}}}}}`, component.WatchFilterLabel, component.UpstreamFilterValue,
	))
	f.handOver(t, component.UpstreamFilterValue, upstreamDeploymentFinalizer)
	verdict := f.watchBounds(t, rolloutBounds{maxMachines: 5, minAvailable: 4})
	begin := func(template string) {
		f.setInfrastructureTemplate(t, template)
		rig.Eventually(t, "a machine of template "+template, func() (bool, any) {
			made := f.countMachinesByTemplate(t)
			return made[template] > 0, made
		})
	}

	begin("second")
	f.setWatchFilter(t, component.MillwrightFilterValue)
	f.takeOver(t)
	f.awaitMachinesOfTemplate(t, "second", 4)

	begin("third")
	f.setWatchFilter(t, component.UpstreamFilterValue)
	f.awaitFinalizer(t, upstreamDeploymentFinalizer)
	f.awaitMachinesOfTemplate(t, "third", 4)
	verdict()
	created, deleted := s.countMachineWrites(t)
	t.Logf("created %v, deleted %v", created, deleted)
	assert.Equal(t, []int{13, 8}, []int{sum(created), sum(deleted)}, "with the machine of the control plane")
}

func sum(counts map[string]int) (all int) {
	for _, n := range counts {
		all += n
	}
	return all
}
