package component

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"millwright/devstack/build"
)

const loopback = "127.0.0.1"

// Most ports are named after the component that listens there; these are the second ports of components.
const (
	etcdPeerPort   = "etcd-peer"
	temporalUIPort = "temporal-ui"

	temporalInternalPort  = "temporal-internal" // first port of a range
	temporalInternalPorts = 8

	firstExtraPort   = 16495 // the extras have these ports
	firstExtraOffset = 22
)

// MaxExtras is the maximum number of extras: a stack has four ports for them.
const MaxExtras = 4

// stackPort is one port of the stack.
type stackPort struct {
	name     string
	owner    string // component that listens there
	standard int    // documented default
	offset   int    // position in a free block
}

// portTable lists all ports. Temporal's two ports are its defaults, which people and tools expect. The other ports are
// unusual, so that they rarely collide with another cluster on this computer, and lower than the ports that Linux takes
// for outgoing connections.
func portTable(extras ...Extra) []stackPort {
	table := []stackPort{
		{Etcd, Etcd, 16379, 0},
		{etcdPeerPort, Etcd, 16380, 1},
		{APIServer, APIServer, 16443, 2},
		{ControllerManager, ControllerManager, 16257, 3},
		{Scheduler, Scheduler, 16259, 4},
		{Kwok, Kwok, 16247, 5},
		{Temporal, Temporal, 7233, 6},
		{temporalUIPort, Temporal, 8233, 7},
		{VirtualCloud, VirtualCloud, 16480, 8},
		{Worker, Worker, 16490, 9}, // this port and the next four serve metrics and health
		{Bridge, Bridge, 16491, 10},
		{ProviderWorker, ProviderWorker, 16492, 11},
		{SecondBridge, SecondBridge, 16493, 12},
		{SecondWorker, SecondWorker, 16494, 21},
		{MCMManager, MCMManager, 16499, 26}, // this port and the next one serve metrics and health
		{MCMMachines, MCMMachines, 16500, 27},
		{temporalInternalPort, Temporal, 16234, 13},
	}
	for i := 1; i < temporalInternalPorts; i++ {
		table = append(table, stackPort{fmt.Sprintf("%s-%d", temporalInternalPort, i), Temporal, 16234 + i, 13 + i})
	}
	for i, e := range extras {
		table = append(table, stackPort{e.Name, e.Name, firstExtraPort + i, firstExtraOffset + i})
	}
	for i, name := range ClusterAPI() {
		// the first: health
		table = append(
			table,
			stackPort{name, name, 16501 + i, 28 + i},
			stackPort{webhooksPort(name), name, 16505 + i, 32 + i},
		)
	}
	return table
}

// Free blocks are also lower than the range of outgoing connections.
const (
	firstBlock = 20000
	blockSize  = 36
	blockCount = 350
)

// StandardPorts returns the documented ports of the chosen components, or an error that names the first port in use.
func StandardPorts(chosen []string, extras ...Extra) (map[string]int, error) {
	ports := map[string]int{}
	for _, p := range portTable(extras...) {
		ports[p.name] = p.standard
	}
	if taken, ok := firstTaken(chosen, ports, extras...); ok {
		return nil, fmt.Errorf("port %d of component %s (%s) is taken: stop what listens there, or use --free-ports",
			ports[taken.name], taken.owner, taken.name)
	}
	return ports, nil
}

// FreePorts returns a block of free ports and the lock that keeps other stacks from using it. The caller closes the
// lock when the stack has ended, or passes it to the supervisor.
func FreePorts(ctx context.Context, chosen []string, extras ...Extra) (map[string]int, *os.File, error) {
	cache, err := build.CacheDir()
	if err != nil {
		return nil, nil, err
	}
	locks := filepath.Join(cache, "ports")
	if err := os.MkdirAll(locks, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make folder of port locks: %w", err)
	}
	for _, i := range rand.Perm(blockCount) {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		first := firstBlock + i*blockSize
		held, err := TryLock(filepath.Join(locks, strconv.Itoa(first)+".lock"))
		if errors.Is(err, ErrLocked) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		ports := map[string]int{}
		for _, p := range portTable(extras...) {
			ports[p.name] = first + p.offset
		}
		if _, taken := firstTaken(chosen, ports, extras...); !taken {
			return ports, held, nil
		}
		_ = held.Close()
	}
	return nil, nil, fmt.Errorf("find free ports: every block of %d ports from %d on is in use", blockSize, firstBlock)
}

// firstTaken returns the first port of the chosen components that is in use.
func firstTaken(chosen []string, ports map[string]int, extras ...Extra) (stackPort, bool) {
	for _, p := range portTable(extras...) {
		for _, name := range chosen {
			if name != p.owner {
				continue
			}
			l, err := net.Listen("tcp", Address(ports[p.name]))
			if err != nil {
				return p, true
			}
			_ = l.Close()
		}
	}
	return stackPort{}, false
}

// Address returns host and port of a port on loopback.
func Address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// ErrLocked is the error of TryLock if another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// TryLock takes an exclusive lock on a file, which it creates if absent. The lock lasts until every copy of the file
// handle is closed, in this process and in the processes that inherited it. So the lock ends at the latest when these
// processes end.
func TryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return file, nil
}
