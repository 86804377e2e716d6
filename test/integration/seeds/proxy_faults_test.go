//go:build integration

package seeds

import (
	"time"

	"millwright/devstack/component"
	"millwright/test/integration/rig"
)

var _ = (*arena).disturbAPI // not part of a plan yet

// disturbAPI disturbs the way of an identity to the API server, for a time. The stack has to be behind proxies.
func (a *arena) disturbAPI(s step) {
	p := map[string]*rig.APIProxy{component.WorkerIdentity: r.Proxies.Worker, component.BridgeIdentity: r.Proxies.Bridge}[s.On]
	if p == nil {
		a.t.Errorf("no proxy for %q", s.On)
		return
	}
	faults := map[string]rig.APIFaults{
		faultAway:  {Unavailable: 1},
		faultStorm: {Busy: 0.1, Conflict: 0.25, Lost: 0.1},
		faultSlow:  {WatchDelay: 5 * time.Second},
	}
	p.Set(faults[s.What])
	if s.What != faultStorm {
		p.CutWatches(0)
	}
	time.Sleep(s.For)
	p.Set(rig.APIFaults{})
}
