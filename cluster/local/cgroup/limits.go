package cgroup

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The CFS bandwidth controller refuses quotas below 1 ms and periods above 1 s.
const (
	shortPeriod = 10_000
	longPeriod  = 100_000
	leastQuota  = 1_000
	maxPeriod   = 1_000_000
)

// Quota returns the CFS quota and period, in µs, of a CPU share in millicores.
// A share of at most one core gets a period of 10 ms. With the kernel's default of
// 100 ms, a batch that begins late in a period must wait for the next one, which
// quadruples p95 at half a core. Larger shares keep 100 ms, because several threads use
// up a short quota at once and then wait for each other. A share whose quota would fall
// below the kernel's minimum of 1 ms gets a longer period.
func Quota(millicores int) (quota int64, period uint64) {
	period = shortPeriod
	if millicores > 1000 {
		period = longPeriod
	}
	millicores = max(1, millicores)
	for period < maxPeriod && int64(millicores)*int64(period)/1000 < leastQuota {
		period *= 10
	}
	return max(leastQuota, int64(millicores)*int64(period)/1000), period
}

// formatCores returns cores in the kernel's list format: "0-2,5".
func formatCores(cores []int) string {
	cores = slices.Compact(slices.Sorted(slices.Values(cores)))
	var list strings.Builder
	for i := 0; i < len(cores); {
		last := i
		for last+1 < len(cores) && cores[last+1] == cores[last]+1 {
			last++
		}
		if i > 0 {
			list.WriteByte(',')
		}
		list.WriteString(strconv.Itoa(cores[i]))
		if last > i {
			fmt.Fprintf(&list, "-%d", cores[last])
		}
		i = last + 1
	}
	return list.String()
}
