package incus

import (
	"errors"
	"net"

	"millwright/devstack/component"
	"millwright/devstack/lab/cgroup"
)

// removeLeftoverCgroups removes the cgroups of servers that were killed. If a network has no interface and no process
// holds its lock, no server uses the network. removeLeftoverCgroups does not wait, because a cgroup that is still in
// use belongs to a server with another cache folder and other locks.
func removeLeftoverCgroups() error {
	for _, network := range Networks() {
		if _, err := net.InterfaceByName(network.Name); err == nil {
			continue
		}
		lock, err := LockNetwork(network)
		if errors.Is(err, component.ErrLocked) {
			continue
		}
		if err != nil {
			return err
		}
		// an error is ignored, because the next start of a server retries the removal
		_ = cgroup.TryRemove(network.Name)
		if err := lock.Close(); err != nil {
			return err
		}
	}
	return nil
}
