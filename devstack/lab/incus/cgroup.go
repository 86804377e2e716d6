package incus

import (
	"errors"
	"net"

	"millwright/devstack/component"
	"millwright/devstack/lab/cgroup"
)

// sweepCgroups removes the cgroups of other servers that were killed: a network that no process has locked has no
// server any more. It waits for nothing: a cgroup that is still in use belongs to a server with another cache folder,
// and so with other locks.
func sweepCgroups() error {
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
		_ = cgroup.TryRemove(network.Name) // the next start of a server tries again
		if err := lock.Close(); err != nil {
			return err
		}
	}
	return nil
}
