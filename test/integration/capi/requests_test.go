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

// TestEnduranceRequestsOfTenMachines counts the requests of ten machines, created and deleted again, with Millwright's
// MachineSet and with Cluster API's. Cluster API's other controllers are in both numbers. It asserts nothing: the
// figures are for people.
func TestEnduranceRequestsOfTenMachines(t *testing.T) {
	const n = 10
	count := func(filter, name string, users ...string) {
		p := newPool(t, name, 0)
		if filter == component.UpstreamFilter {
			p.give(t, filter, theirFinalizer)
			p.merge(
				t,
				machineSets,
				p.set,
				fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{%q:%q}}}}}`, component.WatchFilterLabel, filter),
			)
		}
		time.Sleep(5 * time.Second) // what the creation of the set costs is not counted
		before := len(r.Audit(t, of(users)))
		began := time.Now()
		p.resize(t, n)
		p.awaitCounts(t, n)
		objects := time.Since(began)
		p.awaitStatus(t, n)
		ready := time.Since(began)
		p.resize(t, 0)
		p.awaitCounts(t, 0)
		all := time.Since(began)
		time.Sleep(3 * time.Second)
		t.Logf("%s: %d requests a machine of %v; objects after %.1f s, ready after %.1f s, gone after %.1f s",
			filter, (len(r.Audit(t, of(users)))-before)/n, users, objects.Seconds(), ready.Seconds(), all.Seconds())
	}
	count(
		component.OurFilter,
		"ours-ten",
		component.WorkerIdentity,
		component.BridgeIdentity,
		component.ClusterAPIIdentity,
	)
	count(component.UpstreamFilter, "theirs-ten", component.ClusterAPIIdentity)
	count(component.OurFilter, "ours-again", component.WorkerIdentity, component.BridgeIdentity)
}

func of(users []string) func(rig.Audited) bool {
	return func(a rig.Audited) bool {
		return slices.Contains(users, a.User.Username)
	}
}
