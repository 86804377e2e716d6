package incus

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"millwright/devstack/lab/cgroup"
	"millwright/devstack/lab/isolated"
)

//go:embed start.sh
var startScript string

const (
	searchPath    = "/usr/libexec/incus:/usr/sbin:/usr/bin" // PATH of programs in the server's root folder
	retryInterval = 50 * time.Millisecond
	// startTimeout is the timeout for the first answer of incusd. An idle machine needs a second.
	startTimeout = 30 * time.Second
	// stopTimeout is the time that incusd has after SIGTERM to write its database. After stopTimeout, incusd and the
	// instances are killed.
	stopTimeout = 2 * time.Second
	// cleanupTimeout is the timeout for removing cgroups and the interface after the last process has ended. The kernel
	// removes namespaces in the background.
	cleanupTimeout = 30 * time.Second
)

// launch starts process 1 in new namespaces; process 1 starts incusd. launch returns when incusd answers.
func (s *Server) launch(ctx context.Context, root string) error {
	if err := s.removeLeftovers(ctx); err != nil { // removes the leftovers of a killed server
		return err
	}
	if err := removeLeftoverCgroups(); err != nil {
		return err
	}
	if err := raiseInotifyLimit(); err != nil {
		return err
	}
	if err := s.writeStateFile(); err != nil { // from here on, CleanUpKilledServer can clean up after a killed server
		return err
	}
	groups, err := cgroup.Make(s.Network.Name)
	if err != nil {
		return err
	}
	host, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer func() { _ = host.Close() }()
	s.process, err = isolated.Start(isolated.Options{
		Script: startScript, Dir: s.Dir, CgroupFolders: groups, Files: []*os.File{host}, LogPath: s.LogPath(),
		Env: []string{
			"PATH=" + searchPath + ":/sbin:/bin",
			// incusd's database uses libuv. If libuv uses io_uring, epoll in the same process may miss connections
			// (Linux 6.18). incusd then does not answer until one of its timers fires, and the start of an instance
			// fails after 30 s.
			"UV_USE_IO_URING=0",
			"ROOT=" + root,
			"DATA=" + s.Dir,
			"CABLE=" + s.Network.Name,
			"HOST_ADDRESS=" + s.Network.HostAddress + "/16",
		},
	})
	if err != nil {
		return err
	}
	s.PID = s.process.PID
	if err := s.writeStateFile(); err != nil {
		return err
	}
	err = s.process.AwaitSuccess(ctx, startTimeout, func(ctx context.Context) error {
		_, err := s.RunIncus(ctx, "query", "/1.0")
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; see %s", err, s.LogPath())
	}
	return nil
}

// minInotifyInstances is the minimum of fs.inotify.max_user_instances with which a server starts. Kubelet and
// containerd of one node use about ten inotify instances, and all nodes of all servers share root's limit. The kernel's
// default is
// 128. At the limit containerd starts without its CRI plugin.
const minInotifyInstances = 4096

// raiseInotifyLimit raises the kernel's limit to minInotifyInstances. The limit is not lowered again, because other
// servers may need it.
func raiseInotifyLimit() error {
	const limit = "/proc/sys/fs/inotify/max_user_instances"
	text, err := os.ReadFile(limit)
	if err != nil {
		return fmt.Errorf("read the limit of inotify instances: %w", err)
	}
	if now, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && now >= minInotifyInstances {
		return nil
	}
	if err := os.WriteFile(limit, []byte(strconv.Itoa(minInotifyInstances)), 0o644); err != nil {
		return fmt.Errorf("raise fs.inotify.max_user_instances to %d: %w", minInotifyInstances, err)
	}
	return nil
}

// Done returns a channel that is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Stop stops the server and all its instances. Stop returns when no process, mount, interface or cgroup of the server
// is left on this machine; the data stay in Dir. Stop may be called again.
func (s *Server) Stop(ctx context.Context) error {
	if s.process != nil {
		s.process.Terminate(stopTimeout)
	}
	err := s.removeLeftovers(ctx)
	if s.networkLock != nil {
		err = errors.Join(err, s.networkLock.Close())
		s.networkLock = nil
	}
	return err
}

// removeLeftovers removes the cgroups and server.json after all processes have ended, and waits until the kernel has
// removed the network interface.
func (s *Server) removeLeftovers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	if err := cgroup.Remove(ctx, s.Network.Name); err != nil {
		return err
	}
	for {
		if _, err := net.InterfaceByName(s.Network.Name); err != nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of interface %s: %w", s.Network.Name, ctx.Err())
		case <-time.After(retryInterval):
		}
	}
	return s.removeStateFile()
}
