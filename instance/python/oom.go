package python

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// killed reports whether SIGKILL ended a process. [outOfMemory] may have counted it, but
// it also counts other processes of the control group.
func killed(status syscall.WaitStatus) bool {
	return status.Signaled() && status.Signal() == syscall.SIGKILL
}

// outOfMemory returns the number of processes of this control group that the kernel
// killed at the memory limit, 0 if it is unknown.
func outOfMemory() uint64 {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var file string
		switch {
		case parts[1] == "":
			file = filepath.Join("/sys/fs/cgroup", parts[2], "memory.events")
		case strings.Contains(","+parts[1]+",", ",memory,"):
			file = filepath.Join("/sys/fs/cgroup/memory", parts[2], "memory.oom_control")
		default:
			continue
		}
		if count, ok := countIn(file); ok {
			return count
		}
	}
	return 0
}

func countIn(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "oom_kill" {
			count, err := strconv.ParseUint(fields[1], 10, 64)
			return count, err == nil
		}
	}
	return 0, false
}
