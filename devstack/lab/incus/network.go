package incus

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"millwright/devstack/build"
	"millwright/devstack/component"
)

// Network is the network of real machines: a bridge in a network namespace of its own, and a cable to this machine. The
// zero value means that there is none.
type Network struct {
	Name string `json:"name"` // name of the cable's end on this machine, and of the server's cgroups
	// Subnet is the subnet of machines and pods, for instance 10.200.0.0/16. Machines get addresses of its lower half,
	// pods of its upper half.
	Subnet string `json:"subnet"`
	Bridge string `json:"bridge"` // address of the bridge, and of incusd
	Host   string `json:"host"`   // address of this machine in the network; only the API server is reached there
	Pods   string `json:"pods"`   // upper half of the subnet, for pods; each node gets a /24 of it
}

// The networks are 10.200.0.0/16 and the following ones: rarely used, because their number is neither small nor
// special.
const (
	firstNetwork = 200
	networkCount = 32
)

func numberedNetwork(i int) Network {
	prefix := "10." + strconv.Itoa(firstNetwork+i)
	return Network{
		Name:   "mwnodes" + strconv.Itoa(i), // an interface's name has at most 15 bytes
		Subnet: prefix + ".0.0/16",
		Bridge: prefix + ".0.1",
		Host:   prefix + ".0.2",
		Pods:   prefix + ".128.0/17",
	}
}

// APIServer returns the URL of the API server for machines. Its port is the usual one and always the same, also in a
// stack on free ports: machines that start again know it.
func (n Network) APIServer() string { return "https://" + n.Entrance() }

// Entrance returns the address at which machines reach the API server.
func (n Network) Entrance() string { return net.JoinHostPort(n.Host, "6443") }

// Networks returns all networks that servers of Incus may use.
func Networks() []Network {
	var all []Network
	for i := range networkCount {
		all = append(all, numberedNetwork(i))
	}
	return all
}

// NetworkNamed returns the network of a name.
func NetworkNamed(name string) (Network, error) {
	all := Networks()
	i := slices.IndexFunc(all, func(n Network) bool { return n.Name == name })
	if i < 0 {
		return Network{}, fmt.Errorf("no network %q: the first is %s", name, all[0].Name)
	}
	return all[i], nil
}

// FreeNetwork returns a network that no interface of this machine is in, and the lock that keeps other stacks from
// using it. The caller closes the lock when the machines have ended, or passes it to the supervisor. A second call for
// the same folder returns the same network, unless another stack has it: machines that start again know the API server
// by its address in that network.
func FreeNetwork(ctx context.Context, dir string) (Network, *os.File, error) {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(dir))
	for i := range networkCount {
		if err := ctx.Err(); err != nil {
			return Network{}, nil, err
		}
		n := numberedNetwork((int(sum.Sum32()%networkCount) + i) % networkCount)
		held, err := LockNetwork(n)
		if errors.Is(err, component.ErrLocked) {
			continue
		}
		if err != nil {
			return Network{}, nil, err
		}
		taken, err := n.isTaken()
		if err == nil && !taken {
			return n, held, nil
		}
		if err := errors.Join(err, held.Close()); err != nil {
			return Network{}, nil, err
		}
	}
	return Network{}, nil, fmt.Errorf("find a free network: all from %s on are in use", numberedNetwork(0).Subnet)
}

// LockNetwork locks a network against other stacks until the file is closed. It returns component.ErrLocked if another
// process has it.
func LockNetwork(n Network) (*os.File, error) {
	cache, err := build.CacheDir()
	if err != nil {
		return nil, err
	}
	locks := filepath.Join(cache, "networks")
	if err := os.MkdirAll(locks, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of network locks: %w", err)
	}
	return component.TryLock(filepath.Join(locks, n.Name+".lock"))
}

// isTaken reports whether an interface of this machine already has an address in a network that overlaps with network
// n.
func (n Network) isTaken() (bool, error) {
	subnet, err := netip.ParsePrefix(n.Subnet)
	if err != nil {
		return false, fmt.Errorf("parse subnet: %w", err)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("read addresses of this machine: %w", err)
	}
	for _, a := range addresses {
		if other, err := netip.ParsePrefix(a.String()); err == nil && other.Overlaps(subnet) {
			return true, nil
		}
	}
	return false, nil
}
