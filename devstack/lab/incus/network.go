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

// Network is the network of real machines: a bridge in the server's network namespace, and a veth pair to this machine.
// The zero value means no network.
type Network struct {
	Name string `json:"name"` // name of the veth end on this machine, and of the server's cgroups
	// Subnet is the subnet of machines and pods, for instance 10.200.0.0/16. Machines get addresses from the lower half
	// of the subnet, and pods from the upper half.
	Subnet        string `json:"subnet"`
	BridgeAddress string `json:"bridge"` // address of the bridge; incusd listens there
	HostAddress   string `json:"host"`   // this machine's address in the network, only for the API server
	PodSubnet     string `json:"pods"`   // upper half of the subnet, for pods; each node gets a /24
}

// The networks are 10.200.0.0/16 to 10.231.0.0/16, because other software rarely uses these addresses.
const (
	firstSubnetNumber = 200
	networkCount      = 32
)

func networkByNumber(i int) Network {
	prefix := "10." + strconv.Itoa(firstSubnetNumber+i)
	return Network{
		Name:          "mwnodes" + strconv.Itoa(i), // the kernel limits names of interfaces to 15 bytes
		Subnet:        prefix + ".0.0/16",
		BridgeAddress: prefix + ".0.1",
		HostAddress:   prefix + ".0.2",
		PodSubnet:     prefix + ".128.0/17",
	}
}

// APIServerURL returns the API server's URL for machines. The port is always 6443, even in a stack with free ports,
// because machines keep the URL across restarts of the stack.
func (n Network) APIServerURL() string { return "https://" + n.APIServerAddress() }

// APIServerAddress returns the address and port at which machines reach the API server.
func (n Network) APIServerAddress() string { return net.JoinHostPort(n.HostAddress, "6443") }

// Networks returns all networks that servers of Incus may use.
func Networks() []Network {
	var all []Network
	for i := range networkCount {
		all = append(all, networkByNumber(i))
	}
	return all
}

// NetworkByName returns the network with this name.
func NetworkByName(name string) (Network, error) {
	all := Networks()
	i := slices.IndexFunc(all, func(n Network) bool { return n.Name == name })
	if i < 0 {
		return Network{}, fmt.Errorf("no network %q: the first is %s", name, all[0].Name)
	}
	return all[i], nil
}

// LockFreeNetwork returns a network without an interface on this machine, and the network's lock against other stacks.
// The caller closes the lock when the machines have ended, or passes the lock to the supervisor. A second call for the
// same folder returns the same network, unless another stack uses it. With the same network, restarted machines can
// reach the API server at its old address.
func LockFreeNetwork(ctx context.Context, dir string) (Network, *os.File, error) {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(dir))
	for i := range networkCount {
		if err := ctx.Err(); err != nil {
			return Network{}, nil, err
		}
		n := networkByNumber((int(sum.Sum32()%networkCount) + i) % networkCount)
		held, err := LockNetwork(n)
		if errors.Is(err, component.ErrLocked) {
			continue
		}
		if err != nil {
			return Network{}, nil, err
		}
		taken, err := n.isInUse()
		if err == nil && !taken {
			return n, held, nil
		}
		if err := errors.Join(err, held.Close()); err != nil {
			return Network{}, nil, err
		}
	}
	return Network{}, nil, fmt.Errorf("find a free network: all from %s on are in use", networkByNumber(0).Subnet)
}

// LockNetwork locks a network against other stacks until the returned file is closed. LockNetwork returns
// component.ErrLocked if another process holds the lock.
func LockNetwork(n Network) (*os.File, error) {
	cache, err := build.CacheDir()
	if err != nil {
		return nil, err
	}
	locks := filepath.Join(cache, "networks")
	if err := os.MkdirAll(locks, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of network locks: %w", err)
	}
	return component.TryLockFile(filepath.Join(locks, n.Name+".lock"))
}

// isInUse reports whether an interface of this machine has an address in a network that overlaps with n.
func (n Network) isInUse() (bool, error) {
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
