// Package attached starts processes that must end with this process. The stack's supervisor starts its components with
// this package, and package incus starts its server.
package attached

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// parentThreadQueue returns the queue of a goroutine that is bound to one thread until this process ends. This
// goroutine forks all attached children. The kernel sends the parent-death signal when the *thread* that forked the
// child ends, and Go may end any thread to which no goroutine is bound.
var parentThreadQueue = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// StartCommand starts a process that the kernel kills when this process ends for any reason. StartCommand is safe for
// concurrent use.
func StartCommand(command *exec.Cmd) error {
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	parentThreadQueue() <- func() { started <- command.Start() }
	return <-started
}
