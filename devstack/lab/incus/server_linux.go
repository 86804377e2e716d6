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
	path       = "/usr/libexec/incus:/usr/sbin:/usr/bin" // variable PATH of programs in the server's root folder
	retryEvery = 50 * time.Millisecond
	// answerWithin bounds the start of incusd, which takes a second on an idle machine.
	answerWithin = 30 * time.Second
	// endWithin is how long incusd may take to write its database after SIGTERM. Instances end with incusd even if that
	// takes longer.
	endWithin = 2 * time.Second
	// cleanWithin bounds what the kernel does after the last process has ended: it removes namespaces in the
	// background.
	cleanWithin = 30 * time.Second
)

// launch creates new namespaces, whose process 1 starts incusd, and waits until incusd answers.
func (s *Server) launch(ctx context.Context, root string) error {
	if err := s.clean(ctx); err != nil { // removes what a killed server has left
		return err
	}
	if err := sweepCgroups(); err != nil {
		return err
	}
	if err := allowWatches(); err != nil {
		return err
	}
	if err := s.writeState(); err != nil { // from now on there is something to clean up
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
		Script: startScript, Dir: s.Dir, Groups: groups, Files: []*os.File{host}, Log: s.LogPath(),
		Env: []string{
			"PATH=" + path + ":/sbin:/bin",
			// incusd's database uses libuv. With its io_uring, epoll of the same process may miss connections (Linux
			// 6.18): incusd then answers nobody until one of its timers fires, and an instance's start fails after 30
			// s.
			"UV_USE_IO_URING=0",
			"ROOT=" + root,
			"DATA=" + s.Dir,
			"CABLE=" + s.Network.Name,
			"HOST_ADDRESS=" + s.Network.Host + "/16",
		},
	})
	if err != nil {
		return err
	}
	s.PID = s.process.PID
	if err := s.writeState(); err != nil {
		return err
	}
	err = s.process.Await(ctx, answerWithin, func(ctx context.Context) error {
		_, err := s.Run(ctx, "query", "/1.0")
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; see %s", err, s.LogPath())
	}
	return nil
}

// inotifyLimit is the lowest limit of inotify instances of one user with which a server starts. Kubelet and containerd
// of one node have about ten instances, and the instances of all nodes of all servers belong to root. The kernel's
// default is 128. At the limit containerd starts without its CRI plugin.
const inotifyLimit = 4096

// allowWatches raises the kernel's limit to inotifyLimit, and leaves it raised: other servers may need it.
func allowWatches() error {
	const limit = "/proc/sys/fs/inotify/max_user_instances"
	text, err := os.ReadFile(limit)
	if err != nil {
		return fmt.Errorf("read the limit of inotify instances: %w", err)
	}
	if now, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && now >= inotifyLimit {
		return nil
	}
	if err := os.WriteFile(limit, []byte(strconv.Itoa(inotifyLimit)), 0o644); err != nil {
		return fmt.Errorf("raise fs.inotify.max_user_instances to %d: %w", inotifyLimit, err)
	}
	return nil
}

// Done is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Stop ends the server and all its instances, and returns when nothing of it is left on this machine: no process,
// mount, interface or cgroup. The data stay in Dir. It may be called again.
func (s *Server) Stop(ctx context.Context) error {
	if s.process != nil {
		s.process.End(endWithin)
	}
	err := s.clean(ctx)
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
		s.lock = nil
	}
	return err
}

// clean removes what is left after all processes have ended, and waits for what the kernel removes.
func (s *Server) clean(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanWithin)
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
		case <-time.After(retryEvery):
		}
	}
	return s.removeState()
}
