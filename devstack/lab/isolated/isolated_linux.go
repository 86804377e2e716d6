package isolated

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"millwright/devstack/attached"
)

// Start starts process 1 of new namespaces. If the calling process ends, even by SIGKILL, the kernel kills all
// processes of the namespaces.
func Start(o Options) (*Process, error) {
	log, err := os.OpenFile(o.LogPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer func() { _ = log.Close() }()
	script := filepath.Join(o.Dir, "start.sh")
	if err := os.WriteFile(script, []byte("set -eu\n"+namespaceShellFunctions+"\n"+o.Script), 0o600); err != nil {
		return nil, fmt.Errorf("write the start script: %w", err)
	}
	command := exec.Command("/bin/sh", script)
	command.Env = append([]string{"GROUPS_OF_SERVER=" + strings.Join(o.CgroupFolders, "\n")}, o.Env...)
	command.ExtraFiles = o.Files
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
	}
	if err := attached.StartCommand(command); err != nil {
		return nil, fmt.Errorf("start process 1 of the server: %w", err)
	}
	p := &Process{PID: command.Process.Pid, command: command, done: make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(p.done)
	}()
	return p, nil
}

// Terminate sends SIGTERM to the server. If the server has not ended in time, Terminate kills it. Terminate returns
// when no process of the namespaces runs. Terminate may be called again.
func (p *Process) Terminate(within time.Duration) {
	_ = p.command.Process.Signal(syscall.SIGTERM) // process 1 forwards the signal to the server
	select {
	case <-p.done:
	case <-time.After(within):
		_ = p.command.Process.Kill() // the kernel kills the whole PID namespace before Wait returns
		<-p.done
	}
}

// AwaitSuccess calls ask until ask returns no error. AwaitSuccess fails if the server ends or the timeout expires.
func (p *Process) AwaitSuccess(ctx context.Context, within time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended before it answered: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("it does not answer within %s: %w", within, err)
		case <-time.After(retryInterval):
		}
	}
}

// Listen listens for TCP connections at an address in the server's network namespace.
func (p *Process) Listen(address string) (listener net.Listener, err error) {
	failed := p.callInNetworkNamespace(func() { listener, err = net.Listen("tcp", address) })
	if failed != nil {
		return nil, failed
	}
	return listener, err
}

// Dial connects to an address in the server's network namespace. The address is an IP address with a port.
func (p *Process) Dial(ctx context.Context, address string) (connection net.Conn, err error) {
	failed := p.callInNetworkNamespace(func() { connection, err = (&net.Dialer{}).DialContext(ctx, "tcp", address) })
	if failed != nil {
		return nil, failed
	}
	return connection, err
}

// callInNetworkNamespace calls f on a thread in the server's network namespace. Sockets that f opens stay in that
// namespace.
func (p *Process) callInNetworkNamespace(f func()) error {
	namespace, err := os.Open(filepath.Join("/proc", strconv.Itoa(p.PID), "ns", "net"))
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer func() { _ = namespace.Close() }()
	entered := make(chan error, 1)
	go runOnTemporaryThread(func() {
		err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		entered <- err
	})
	if err := <-entered; err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	return nil
}

// runOnTemporaryThread calls f on a thread that ends with its goroutine, so that no other goroutine runs in a network
// namespace that f has entered. The first thread of a process never ends and would stay in the namespace. On the first
// thread, runOnTemporaryThread therefore waits while another thread calls f.
func runOnTemporaryThread(f func()) {
	runtime.LockOSThread() // a locked thread ends with its goroutine
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runOnTemporaryThread(f)
	}()
	<-done
	runtime.UnlockOSThread()
}
