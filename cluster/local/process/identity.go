// Package process follows operating-system processes that may outlive the program that
// started them. It distinguishes a process from a later one with the same pid, waits for
// its exit without a thread, reports how it ended, and kills groups of processes. It keeps
// no records; its callers do. Begin reading at [Identity] and [Watch].
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// ErrGone means that a process does not exist any more.
var ErrGone = errors.New("the process is gone")

// Identity names one process for ever. A pid alone does not, because it is reused.
type Identity struct {
	PID int `json:"pid"`
	// StartTime is when it started, in clock ticks since boot.
	StartTime uint64 `json:"startTime"`
	// Boot is the kernel's random name for this boot of the machine.
	Boot string `json:"boot"`
}

var bootID = sync.OnceValues(func() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(raw)), err
})

// Identify returns the identity of the process that has this pid now. The error wraps
// [ErrGone] if there is none.
func Identify(pid int) (Identity, error) {
	boot, err := bootID()
	if err != nil {
		return Identity{}, fmt.Errorf("name of this boot: %w", err)
	}
	stat, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, StartTime: stat.startTime, Boot: boot}, nil
}

// Alive reports whether this process still runs. A zombie does not.
func (id Identity) Alive() bool {
	boot, err := bootID()
	if err != nil || id.PID <= 0 || boot != id.Boot {
		return false
	}
	stat, err := readStat(id.PID)
	return err == nil && stat.startTime == id.StartTime && !stat.dead()
}

// stat holds the fields of /proc/PID/stat that this package uses.
type stat struct {
	state     byte
	startTime uint64
	// cpuTicks is user and system time, including that of threads that have ended.
	cpuTicks uint64
	rssPages int64
}

// dead reports whether the process has exited and only waits to be reaped.
func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

func readStat(pid int) (stat, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, fmt.Errorf("pid %d: %w (%w)", pid, ErrGone, err)
	}
	s, err := parseStat(raw)
	if err != nil {
		return stat{}, fmt.Errorf("pid %d: %w", pid, err)
	}
	return s, nil
}

// parseStat reads a line of proc_pid_stat(5). The second field is the command's name in
// parentheses, which may itself contain spaces and parentheses. So parseStat counts fields
// from the last ')'.
func parseStat(raw []byte) (stat, error) {
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return stat{}, errors.New("stat line without a command")
	}
	fields := strings.Fields(string(raw[end+1:]))
	if len(fields) < 22 || len(fields[0]) != 1 {
		return stat{}, fmt.Errorf("stat line with %d fields after the command", len(fields))
	}
	// fields[0] is the 3rd field of the line.
	var failed error
	number := func(field int) uint64 {
		value, err := strconv.ParseUint(fields[field-3], 10, 64)
		if err != nil && failed == nil {
			failed = fmt.Errorf("stat field %d: %w", field, err)
		}
		return value
	}
	s := stat{
		state:     fields[0][0],
		cpuTicks:  number(14) + number(15),
		startTime: number(22),
		rssPages:  int64(number(24)),
	}
	return s, failed
}
