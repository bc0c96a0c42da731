package python

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// resident returns a process's resident memory in bytes, 0 if the process is gone.
func resident(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(text)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// processorTime returns the CPU time that a process's threads have used, 0 if the process
// is gone.
func processorTime(pid int) time.Duration {
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
	if err != nil {
		return 0
	}
	var total int64
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // The thread has just ended.
		}
		first, _, _ := bytes.Cut(text, []byte(" "))
		n, err := strconv.ParseInt(string(first), 10, 64)
		if err == nil {
			total += n
		}
	}
	return time.Duration(total)
}
