package incus

import (
	"errors"
	"net"

	"millwright/devstack/component"
	"millwright/devstack/lab/cgroup"
)

// sweepCgroups removes the folders of other servers that were killed and not cleaned up after: those of networks that
// nobody has locked. It waits for nothing: a group that is still in use belongs to a server with another cache folder,
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
		_ = cgroup.TryRemove(network.Name) // the next start tries again
		if err := lock.Close(); err != nil {
			return err
		}
	}
	return nil
}
