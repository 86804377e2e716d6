package stack

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// checkPlatform returns an error if the stack cannot run on this system.
func checkPlatform() error { return nil }

// ProcessWithPID returns the identity of a process that runs or is a zombie.
func ProcessWithPID(pid int) (Process, error) {
	stat, err := readProcStat(pid)
	if err != nil {
		return Process{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return Process{PID: pid, StartID: bootID() + "/" + stat.startTicks}, nil
}

// bootID identifies the boot of the machine, because clock ticks start at zero with each boot.
var bootID = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown-boot"
	}
	return strings.TrimSpace(string(text))
})

// isAlive reports whether the process still runs; false if another process has its PID. A zombie counts as ended.
func (p Process) isAlive() bool {
	stat, err := p.readStatistics()
	return err == nil && stat.state != "Z" && stat.state != "X"
}

// isPaused reports whether a signal has stopped the process.
func (p Process) isPaused() bool {
	stat, err := p.readStatistics()
	return err == nil && stat.state == "T"
}

// ResourceUsage returns the CPU time and the resident memory of the process; zeros if the process has ended.
func (p Process) ResourceUsage() (cpu time.Duration, memory int64) {
	stat, err := p.readStatistics()
	if err != nil {
		return 0, 0
	}
	const ticksPerSecond = 100 // USER_HZ, which is the same on every Linux
	return time.Duration(stat.cpuTicks) * (time.Second / ticksPerSecond), stat.residentPages * int64(os.Getpagesize())
}

// readStatistics reads /proc/PID/stat. If another process has the PID now, readStatistics returns os.ErrProcessDone.
func (p Process) readStatistics() (procStat, error) {
	if p.PID == 0 {
		return procStat{}, os.ErrProcessDone
	}
	stat, err := readProcStat(p.PID)
	if err != nil {
		return procStat{}, err
	}
	if p.StartID != bootID()+"/"+stat.startTicks {
		return procStat{}, os.ErrProcessDone
	}
	return stat, nil
}

// procStat has the fields of /proc/PID/stat (proc(5)) that this package uses.
type procStat struct {
	state         string // state of the process: R, S, T, Z, …
	cpuTicks      int64  // CPU time in user and kernel mode, in clock ticks
	startTicks    string // start time, in clock ticks after the boot
	residentPages int64  // resident memory, in pages
}

func readProcStat(pid int) (procStat, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, err
	}
	// The second field is the program's name in parentheses. The name may contain spaces and parentheses, so the fields
	// are counted from the last parenthesis.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const state, user, system, start, resident = 0, 11, 12, 19, 21
	if len(fields) <= resident {
		return procStat{}, fmt.Errorf("parse /proc/%d/stat: %d fields", pid, len(fields))
	}
	number := func(i int) int64 {
		// this cannot fail, because the kernel writes only numbers here
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
		return n
	}
	return procStat{
		state: string(fields[state]), cpuTicks: number(user) + number(system),
		startTicks: string(fields[start]), residentPages: number(resident),
	}, nil
}
