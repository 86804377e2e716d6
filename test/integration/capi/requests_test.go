//go:build integration && endurance

package capi

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// TestEnduranceRequestsOfTenMachines counts the requests for ten machines that are created and deleted, with
// Millwright's MachineSet and with Cluster API's MachineSet. The numbers for both MachineSets include the requests of
// Cluster API's other controllers. The test asserts nothing; it prints the numbers.
func TestEnduranceRequestsOfTenMachines(t *testing.T) {
	const n = 10
	count := func(filter, name string, users ...string) {
		p := newPool(t, name, 0)
		if filter == component.UpstreamFilterValue {
			p.handOver(t, filter, upstreamSetFinalizer)
			p.applyMergePatch(
				t,
				machineSetResource,
				p.poolName,
				fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{%q:%q}}}}}`, component.WatchFilterLabel, filter),
			)
		}
		time.Sleep(5 * time.Second) // the requests for the creation of the set are not counted
		before := len(testRig.AuditedRequests(t, matchRequestsOfUsers(users)))
		began := time.Now()
		p.scale(t, n)
		p.awaitObjectCounts(t, n)
		objects := time.Since(began)
		p.awaitReplicaStatus(t, n)
		ready := time.Since(began)
		p.scale(t, 0)
		p.awaitObjectCounts(t, 0)
		all := time.Since(began)
		time.Sleep(3 * time.Second)
		t.Logf(
			"%s: %d requests a machine of %v; objects after %.1f s, ready after %.1f s, gone after %.1f s",
			filter,
			(len(testRig.AuditedRequests(t, matchRequestsOfUsers(users)))-before)/n,
			users,
			objects.Seconds(),
			ready.Seconds(),
			all.Seconds(),
		)
	}
	count(
		component.MillwrightFilterValue,
		"ours-ten",
		component.WorkerIdentity,
		component.BridgeIdentity,
		component.ClusterAPIIdentity,
	)
	count(component.UpstreamFilterValue, "theirs-ten", component.ClusterAPIIdentity)
	count(component.MillwrightFilterValue, "ours-again", component.WorkerIdentity, component.BridgeIdentity)
}

func matchRequestsOfUsers(users []string) func(rig.AuditedRequest) bool {
	return func(a rig.AuditedRequest) bool {
		return slices.Contains(users, a.User.Username)
	}
}
