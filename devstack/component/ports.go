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

const loopbackAddress = "127.0.0.1"

// The names of the components' additional ports. A component's main port has the component's name.
const (
	etcdPeerPortName   = "etcd-peer"
	temporalUIPortName = "temporal-ui"

	temporalInternalPortName  = "temporal-internal" // first of temporalInternalPortCount ports
	temporalInternalPortCount = 8

	firstExtraComponentPort   = 16495 // documented port of the first extra
	firstExtraComponentOffset = 22
)

// MaxExtraComponents is the maximum number of extras: a stack has four ports for them.
const MaxExtraComponents = 4

// stackPort is one port that a component of the stack listens on.
type stackPort struct {
	name          string
	componentName string // component that listens on the port
	standardPort  int    // documented port
	blockOffset   int    // position of the port in a free block
}

// stackPorts lists all ports of a stack. Temporal's frontend and UI have Temporal's default ports, which people and
// tools expect. All other ports are unusual, so that they rarely collide with another cluster on the computer. All
// ports are lower than the ports that Linux takes for outgoing connections.
func stackPorts(extras ...ExtraComponent) []stackPort {
	table := []stackPort{
		{Etcd, Etcd, 16379, 0},
		{etcdPeerPortName, Etcd, 16380, 1},
		{APIServer, APIServer, 16443, 2},
		{ControllerManager, ControllerManager, 16257, 3},
		{Scheduler, Scheduler, 16259, 4},
		{Kwok, Kwok, 16247, 5},
		{Temporal, Temporal, 7233, 6},
		{temporalUIPortName, Temporal, 8233, 7},
		{VirtualCloud, VirtualCloud, 16480, 8},
		{Worker, Worker, 16490, 9}, // the ports of worker, bridge and their variants serve metrics and health
		{Bridge, Bridge, 16491, 10},
		{ProviderWorker, ProviderWorker, 16492, 11},
		{SecondBridge, SecondBridge, 16493, 12},
		{SecondWorker, SecondWorker, 16494, 21},
		{MCMManager, MCMManager, 16499, 26}, // the ports of both MCM processes serve metrics and health
		{MCMMachineController, MCMMachineController, 16500, 27},
		{temporalInternalPortName, Temporal, 16234, 13},
	}
	for i := 1; i < temporalInternalPortCount; i++ {
		table = append(table, stackPort{fmt.Sprintf("%s-%d", temporalInternalPortName, i), Temporal, 16234 + i, 13 + i})
	}
	for i, e := range extras {
		table = append(table, stackPort{e.Name, e.Name, firstExtraComponentPort + i, firstExtraComponentOffset + i})
	}
	for i, name := range ClusterAPINames() {
		// The port with the component's name serves health checks.
		table = append(
			table,
			stackPort{name, name, 16501 + i, 28 + i},
			stackPort{webhooksPortName(name), name, 16505 + i, 32 + i},
		)
	}
	return table
}

// All ports of the free blocks are lower than Linux' range of outgoing ports.
const (
	firstBlockPort = 20000
	portBlockSize  = 36
	portBlockCount = 350
)

// StandardPorts returns the documented ports. If a chosen component's port is in use, StandardPorts returns an error
// that names the first port in use.
func StandardPorts(chosen []string, extras ...ExtraComponent) (map[string]int, error) {
	ports := map[string]int{}
	for _, p := range stackPorts(extras...) {
		ports[p.name] = p.standardPort
	}
	if taken, ok := firstPortInUse(chosen, ports, extras...); ok {
		return nil, fmt.Errorf("port %d of component %s (%s) is taken: stop what listens there, or use --free-ports",
			ports[taken.name], taken.componentName, taken.name)
	}
	return ports, nil
}

// ReserveFreePorts returns a block of free ports, and the lock that reserves the block against other stacks. The caller
// closes the lock when the stack has ended, or passes the lock to the supervisor.
func ReserveFreePorts(
	ctx context.Context,
	chosen []string,
	extras ...ExtraComponent,
) (map[string]int, *os.File, error) {
	cache, err := build.CacheDir()
	if err != nil {
		return nil, nil, err
	}
	locks := filepath.Join(cache, "ports")
	if err := os.MkdirAll(locks, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make folder of port locks: %w", err)
	}
	for _, i := range rand.Perm(portBlockCount) {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		first := firstBlockPort + i*portBlockSize
		held, err := TryLockFile(filepath.Join(locks, strconv.Itoa(first)+".lock"))
		if errors.Is(err, ErrLocked) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		ports := map[string]int{}
		for _, p := range stackPorts(extras...) {
			ports[p.name] = first + p.blockOffset
		}
		if _, taken := firstPortInUse(chosen, ports, extras...); !taken {
			return ports, held, nil
		}
		_ = held.Close()
	}
	return nil, nil, fmt.Errorf(
		"find free ports: every block of %d ports from %d on is in use",
		portBlockSize,
		firstBlockPort,
	)
}

// firstPortInUse returns the first port of the chosen components that is in use; false if all ports are free.
func firstPortInUse(chosen []string, ports map[string]int, extras ...ExtraComponent) (stackPort, bool) {
	for _, p := range stackPorts(extras...) {
		for _, name := range chosen {
			if name != p.componentName {
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

// Address returns host:port of a port on the loopback address.
func Address(port int) string { return net.JoinHostPort(loopbackAddress, strconv.Itoa(port)) }

// ErrLocked is the error of TryLockFile if another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// TryLockFile takes an exclusive lock on a file, and creates the file if absent. The lock is released when this process
// and all processes that inherited the file handle have closed it or have ended.
func TryLockFile(path string) (*os.File, error) {
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
