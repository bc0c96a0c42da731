package local

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// busyWindow is the time over which the machine's use of CPU is averaged. INFaaS measures
	// it every 2 s (§5).
	busyWindow = 2 * time.Second
	// busyStale is the longest time over which it says something about now.
	busyStale = 5 * busyWindow
)

// ticks are the CPU time of cores in the kernel's unit, and the part of it that was used.
type ticks struct{ used, all uint64 }

// busyMeter turns counters of CPU time into a share of the last moments. Its zero value knows
// nothing yet.
type busyMeter struct {
	mu    sync.Mutex
	at    time.Time
	last  ticks
	share float64
	known bool
}

// CPU returns the share, from 0 to 1, of the CPU time that all processes of the machine use on
// the cores where instances may run. known is false until two calls were 2 to 10 s apart.
func (b *Backend) CPU(string) (share float64, known bool) {
	return b.busy.look(b.options.Now(), func() (ticks, bool) {
		text, err := os.ReadFile("/proc/stat")
		if err != nil {
			return ticks{}, false
		}
		return readTicks(string(text), b.cores.All())
	})
}

// look returns the share in the last window. It reads the counters if a window has passed.
func (m *busyMeter) look(now time.Time, read func() (ticks, bool)) (share float64, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since := now.Sub(m.at)
	if since >= 0 && since < busyWindow {
		return m.share, m.known
	}
	next, ok := read()
	m.known = ok && since > 0 && since <= busyStale && next.all > m.last.all && next.used >= m.last.used
	if m.known {
		m.share = min(1, float64(next.used-m.last.used)/float64(next.all-m.last.all))
	}
	m.at, m.last = now, next
	return m.share, m.known
}

// readTicks sums up the counters of cores in the text of /proc/stat; ok is false if it has none
// of them. The fields of a core are user, nice, system, idle, iowait, irq, softirq and steal, then
// those of guests, which user and nice contain.
func readTicks(text string, cores []int) (sum ticks, ok bool) {
	for line := range strings.SplitSeq(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[0], "cpu") {
			continue
		}
		core, err := strconv.Atoi(fields[0][len("cpu"):])
		if err != nil || !slices.Contains(cores, core) {
			continue
		}
		for i, field := range fields[1:min(9, len(fields))] {
			n, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				return ticks{}, false
			}
			if sum.all += n; i != 3 && i != 4 {
				sum.used += n
			}
		}
		ok = true
	}
	return sum, ok
}
