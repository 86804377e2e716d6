//go:build integration

package capi

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

// Finalizers of the controllers of MachineSets and MachineDeployments.
const (
	ourFinalizer              = "machine.sapcloud.io/cluster-api"
	theirFinalizer            = "cluster.x-k8s.io/machineset"
	theirDeploymentsFinalizer = "cluster.x-k8s.io/machinedeployment"
)

func TestASetIsHandedOverAndBackWithoutReplacingAMachine(t *testing.T) {
	t.Parallel()
	p := newPool(t, "handed", 0)
	p.give(t, component.UpstreamFilter, theirFinalizer)
	p.merge(
		t,
		machineSets,
		p.set,
		fmt.Sprintf(
			`{"spec":{"replicas":2,"template":{"metadata":{"labels":{%q:%q}}}}}`,
			component.WatchFilterLabel,
			component.UpstreamFilter,
		),
	)
	p.awaitStatus(t, 2)
	before := p.uids(t)

	p.give(t, component.OurFilter, ourFinalizer)
	p.resize(t, 3)
	p.awaitStatus(t, 3)
	assert.Subset(t, p.uids(t), before, "Millwright keeps the machines of Cluster API")
	third := p.uids(t)
	p.merge(t, machineSets, p.set, `{"spec":{"template":{"metadata":{"labels":{"by":"millwright"}}}}}`)
	p.awaitLabel(t, "by", "millwright")

	p.give(t, component.UpstreamFilter, theirFinalizer)
	p.resize(t, 4)
	p.awaitStatus(t, 4)
	assert.Subset(t, p.uids(t), third, "Cluster API keeps the machines of Millwright")
	p.merge(t, machineSets, p.set, `{"spec":{"template":{"metadata":{"labels":{"by":"cluster-api"}}}}}`)
	p.awaitLabel(t, "by", "cluster-api")
	assert.Len(t, p.uids(t), 4)
}

// give gives the set or deployment to a controller, and waits until only the controller's finalizer is there.
func (p pool) give(t *testing.T, filter, finalizer string) {
	t.Helper()
	p.patch(t, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, component.WatchFilterLabel, filter))
	rig.Eventually(t, "it has the finalizer "+finalizer, func() (bool, any) {
		finalizers := p.get(t, p.kind, p.set).GetFinalizers()
		return slices.Equal(finalizers, []string{finalizer}), finalizers
	})
}

// uids returns the UIDs of its machines.
func (p pool) uids(t *testing.T) (uids []types.UID) {
	t.Helper()
	for _, m := range p.members(t) {
		uids = append(uids, m.GetUID())
	}
	return uids
}

// awaitLabel waits until all machines of the set have a label.
func (p pool) awaitLabel(t *testing.T, key, value string) {
	t.Helper()
	rig.Eventually(t, fmt.Sprintf("all machines have the label %s=%s", key, value), func() (bool, any) {
		var values []string
		for _, m := range p.members(t) {
			values = append(values, m.GetLabels()[key])
		}
		return !slices.ContainsFunc(values, func(v string) bool { return v != value }), values
	})
}
