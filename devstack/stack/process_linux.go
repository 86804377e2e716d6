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

// checkSystem returns an error if the stack cannot run on this system.
func checkSystem() error { return nil }

// processOf returns the identity of a running process, or of one that was not waited for yet.
func processOf(pid int) (Process, error) {
	stat, err := readStat(pid)
	if err != nil {
		return Process{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	return Process{PID: pid, Start: bootID() + "/" + stat.start}, nil
}

// bootID distinguishes boots of the machine: clock ticks start at zero with each.
var bootID = sync.OnceValue(func() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "unknown-boot"
	}
	return strings.TrimSpace(string(text))
})

// alive reports whether this same process still runs. A zombie counts as ended.
func (p Process) alive() bool {
	stat, err := p.statistics()
	return err == nil && stat.state != "Z" && stat.state != "X"
}

// paused reports whether the process is stopped by a signal.
func (p Process) paused() bool {
	stat, err := p.statistics()
	return err == nil && stat.state == "T"
}

// usage returns what the process has used so far; zeros if it is gone.
func (p Process) usage() (cpu time.Duration, memory int64) {
	stat, err := p.statistics()
	if err != nil {
		return 0, 0
	}
	const ticksPerSecond = 100 // USER_HZ: the same on every Linux
	return time.Duration(stat.ticks) * (time.Second / ticksPerSecond), stat.pages * int64(os.Getpagesize())
}

// statistics reads the process' statistics. It returns os.ErrProcessDone if another process has the PID now.
func (p Process) statistics() (procStat, error) {
	if p.PID == 0 {
		return procStat{}, os.ErrProcessDone
	}
	stat, err := readStat(p.PID)
	if err != nil {
		return procStat{}, err
	}
	if p.Start != bootID()+"/"+stat.start {
		return procStat{}, os.ErrProcessDone
	}
	return stat, nil
}

// procStat has the used fields of /proc/PID/stat (proc(5)).
type procStat struct {
	state string // state of the process: R, S, T, Z, …
	ticks int64  // CPU time of user and system
	start string // time of the start, in clock ticks after the boot
	pages int64  // resident
}

func readStat(pid int) (procStat, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, err
	}
	// The second field is the name in brackets, which may contain spaces and brackets: count from the last bracket.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const state, user, system, start, resident = 0, 11, 12, 19, 21
	if len(fields) <= resident {
		return procStat{}, fmt.Errorf("parse /proc/%d/stat: %d fields", pid, len(fields))
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(string(fields[i]), 10, 64) // the kernel writes only numbers here
		return n
	}
	return procStat{
		state: string(fields[state]), ticks: number(user) + number(system),
		start: string(fields[start]), pages: number(resident),
	}, nil
}
