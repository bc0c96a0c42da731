package instance

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is the memory of a process in bytes.
type Memory struct {
	// Resident counts all resident pages (Rss). Proportional divides shared pages
	// among the processes that share them (Pss). Anonymous counts pages that no file
	// backs.
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
