package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3"
)

// Own returns the CPU and memory limits of this process itself, zero for none. In a
// container, they may be far below the size of the machine.
func Own() Limits {
	v1, own, err := cgroups.ParseCgroupFileUnified("/proc/self/cgroup")
	if err != nil {
		return Limits{}
	}
	if cgroups.Mode() == cgroups.Unified {
		return ownV2(unifiedMount, own)
	}
	return ownV1(unifiedMount, v1["cpu"], v1["memory"])
}

// ownV2 returns the lowest limits of all groups from path up to the mount.
func ownV2(mount, path string) Limits {
	var limits Limits
	for ; ; path = filepath.Dir(path) {
		dir := filepath.Join(mount, path)
		quota := strings.Fields(readLine(dir, "cpu.max"))
		if len(quota) == 2 {
			limits.CPU = tighter(limits.CPU, millicores(quota[0], quota[1]))
		}
		limits.Memory = tighter(limits.Memory, bytesOf(readLine(dir, "memory.max")))
		if path == "/" || path == "." {
			return limits
		}
	}
}

// ownV1 does the same in version 1, where each controller has its own hierarchy.
func ownV1(mount, cpu, memory string) Limits {
	var limits Limits
	for path := cpu; path != ""; path = up(path) {
		dir := filepath.Join(mount, "cpu", path)
		limits.CPU = tighter(limits.CPU, millicores(readLine(dir, "cpu.cfs_quota_us"), readLine(dir, "cpu.cfs_period_us")))
	}
	for path := memory; path != ""; path = up(path) {
		dir := filepath.Join(mount, "memory", path)
		limits.Memory = tighter(limits.Memory, bytesOf(readLine(dir, "memory.limit_in_bytes")))
	}
	return limits
}

// up returns the parent of an absolute path, "" above the top.
func up(path string) string {
	if path == "/" || path == "." {
		return ""
	}
	return filepath.Dir(path)
}

func tighter[N int | int64](a, b N) N {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func millicores(quota, period string) int {
	q, err1 := strconv.Atoi(quota)
	p, err2 := strconv.Atoi(period)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0
	}
	return max(1, q*1000/p)
}

// bytesOf reads a memory limit in bytes. It returns 0, no limit, for "max" and for
// version 1's number near 2^63.
func bytesOf(limit string) int64 {
	value, err := strconv.ParseInt(limit, 10, 64)
	if err != nil || value <= 0 || value > 1<<62 {
		return 0
	}
	return value
}

func readLine(dir, file string) string {
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
