package instance

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is what a process holds, in bytes.
type Memory struct {
	// Resident is all that is mapped and present, Proportional the same with
	// shared pages divided among those that share them (Pss), Anonymous what
	// is the process's own and backed by no file.
	Resident, Proportional, Anonymous int64
}

// ReadMemory reads a process's memory from /proc/PID/smaps_rollup; pid 0 is
// this process.
func ReadMemory(pid int) (Memory, error) {
	name := "self"
	if pid != 0 {
		name = strconv.Itoa(pid)
	}
	file, err := os.Open("/proc/" + name + "/smaps_rollup")
	if err != nil {
		return Memory{}, err
	}
	defer file.Close()
	var m Memory
	fields := map[string]*int64{"Rss": &m.Resident, "Pss": &m.Proportional, "Anonymous": &m.Anonymous}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		to := fields[key]
		if to == nil {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("%s: %w", file.Name(), err)
		}
		*to = kib << 10
	}
	return m, lines.Err()
}
