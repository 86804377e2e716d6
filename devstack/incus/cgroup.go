package incus

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"millwright/devstack/cgroup"
	"millwright/devstack/component"
)

// makeCgroups makes the server's folders and returns those for process 1 and incusd. In a v2 hierarchy a group with processes
// gives no controllers to its children, so it has a folder for them: liblxc knows init.scope and makes its own beside it.
func (s *Server) makeCgroups() ([]string, error) {
	folders, err := cgroup.Folders(s.Network.Name)
	if err != nil {
		return nil, err
	}
	for i, folder := range folders {
		if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make cgroup: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // of v1: empty at first, and no process may enter
			if filepath.Base(filepath.Dir(folder)) != "cpuset" {
				break
			}
			text, err := os.ReadFile(filepath.Join(filepath.Dir(folder), file))
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, file), []byte(strings.TrimSpace(string(text))), 0o644)
			}
			if err != nil {
				return nil, fmt.Errorf("set up cgroup: %w", err)
			}
		}
		if filepath.Dir(folder) == cgroup.Root {
			folders[i] = filepath.Join(folder, "init.scope")
			if err := os.Mkdir(folders[i], 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, fmt.Errorf("make cgroup: %w", err)
			}
		}
	}
	return folders, nil
}

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
