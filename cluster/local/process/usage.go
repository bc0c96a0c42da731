package process

import (
	"os"
	"time"
)

// clockTick is USER_HZ, which Linux fixes at 100 on every architecture that Go
// runs on.
const clockTick = 10 * time.Millisecond

// Usage returns the CPU time that a process has used since its start, and the memory
// that it holds in bytes. It is for machines without cgroups.
func Usage(id Identity) (cpu time.Duration, memory int64, err error) {
	stat, err := readStat(id.PID)
	if err != nil {
		return 0, 0, err
	}
	if stat.startTime != id.StartTime {
		return 0, 0, ErrGone
	}
	return time.Duration(stat.cpuTicks) * clockTick, stat.rssPages * int64(os.Getpagesize()), nil
}
