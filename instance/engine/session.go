package engine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// session lists the processes of the child's session: itself and what it started.
func (c *Child) session() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if fields := stat(pid); len(fields) > 3 && fields[3] == strconv.Itoa(c.pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stat returns the fields of /proc/PID/stat after the program's name, beginning with
// the state (proc(5)). It returns none if the process is gone.
func stat(pid int) []string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	_, after, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
	return strings.Fields(after)
}

// Memory returns the resident memory of the session's processes in bytes.
func (c *Child) Memory() int64 {
	var total int64
	for _, pid := range c.session() {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
		if err != nil {
			continue // It has just ended.
		}
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			total += pages * int64(os.Getpagesize())
		}
	}
	return total
}

// ProcessorTime returns the CPU time that the session's threads have used.
func (c *Child) ProcessorTime() time.Duration {
	var total int64
	for _, pid := range c.session() {
		files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
		if err != nil {
			continue
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			first, _, _ := strings.Cut(string(text), " ")
			n, _ := strconv.ParseInt(first, 10, 64)
			total += n
		}
	}
	return time.Duration(total)
}

// Listens reports whether a process of the session listens at a port of this machine.
// It returns true if it cannot tell. Two servers may have chosen the same port, and
// then one would answer for the other.
func (c *Child) Listens(port int) bool {
	sockets := map[string]bool{}
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, inode := range listening(string(text), port) {
			sockets["socket:["+inode+"]"] = true
		}
	}
	if len(sockets) == 0 {
		return true
	}
	read := false
	for _, pid := range c.session() {
		dir := "/proc/" + strconv.Itoa(pid) + "/fd"
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		read = true
		for _, e := range entries {
			if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && sockets[to] {
				return true
			}
		}
	}
	return !read
}

// listening returns the inodes of the sockets that listen at a port, from one of the
// kernel's tables (proc_net(5)).
func listening(table string, port int) (inodes []string) {
	const listens = "0A"
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != listens {
			continue
		}
		_, local, _ := strings.Cut(fields[1], ":")
		if n, err := strconv.ParseUint(local, 16, 16); err == nil && int(n) == port {
			inodes = append(inodes, fields[9])
		}
	}
	return inodes
}
