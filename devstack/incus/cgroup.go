package incus

import (
	"errors"
	"net"

	"millwright/devstack/cgroup"
	"millwright/devstack/component"
)

// sweepCgroups removes the folders of other servers that were killed and not cleaned up after: those of networks that nobody has
// locked. It waits for nothing: a group that is still in use belongs to a server with another cache folder, and so with other
// locks.
func sweepCgroups() error {
	for _, network := range component.Networks() {
		if _, err := net.InterfaceByName(network.Name); err == nil {
			continue
		}
		lock, err := component.LockNetwork(network)
		if errors.Is(err, component.ErrLocked) {
			continue
		}
		if err != nil {
			return err
		}
		_ = cgroup.TryRemove(network.Name) // the next start tries again
		if err := lock.Close(); err != nil {
			return err
		}
	}
	return nil
}
