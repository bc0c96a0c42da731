package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestQuota(t *testing.T) {
	for _, test := range []struct {
		millicores    int
		quota, period int64
	}{
		{500, 5_000, 10_000},
		{1000, 10_000, 10_000},
		{100, 1_000, 10_000},
		{50, 5_000, 100_000},
		{5, 5_000, 1_000_000},
		{1, 1_000, 1_000_000},
		{1500, 150_000, 100_000},
		{4000, 400_000, 100_000},
	} {
		quota, period := Quota(test.millicores)
		if quota != test.quota || int64(period) != test.period {
			t.Errorf("%dm: %d µs of %d, want %d of %d", test.millicores, quota, period, test.quota, test.period)
		}
	}
}

func FuzzQuotaIsWhatTheKernelTakes(f *testing.F) {
	f.Add(1)
	f.Add(999)
	f.Add(64_000)
	f.Fuzz(func(t *testing.T, millicores int) {
		if millicores < 1 || millicores > 1_000_000 {
			return
		}
		quota, period := Quota(millicores)
		if quota < 1000 || period < 1000 || period > 1_000_000 {
			t.Fatalf("%dm: %d of %d µs", millicores, quota, period)
		}
		if share := quota * 1000 / int64(period); share != int64(millicores) {
			t.Fatalf("%dm became %dm", millicores, share)
		}
	})
}

func TestFormatCores(t *testing.T) {
	for _, test := range []struct {
		cores []int
		want  string
	}{
		{nil, ""},
		{[]int{0}, "0"},
		{[]int{3, 0, 1, 2}, "0-3"},
		{[]int{0, 2, 4, 5, 5}, "0,2,4-5"},
	} {
		if got := formatCores(test.cores); got != test.want {
			t.Errorf("%v: %q, want %q", test.cores, got, test.want)
		}
	}
}

func TestOwnTakesTheTightestLimitOnTheWayUp(t *testing.T) {
	mount := t.TempDir()
	write(t, filepath.Join(mount, "a/b/cpu.max"), "max 100000\n")
	write(t, filepath.Join(mount, "a/b/memory.max"), "max\n")
	write(t, filepath.Join(mount, "a/cpu.max"), "150000 100000\n")
	write(t, filepath.Join(mount, "a/memory.max"), "1073741824\n")
	if got := ownV2(mount, "/a/b"); got.CPU != 1500 || got.Memory != 1<<30 {
		t.Errorf("version 2: %+v", got)
	}
	write(t, filepath.Join(mount, "cpu/c/cpu.cfs_quota_us"), "50000\n")
	write(t, filepath.Join(mount, "cpu/c/cpu.cfs_period_us"), "100000\n")
	write(t, filepath.Join(mount, "cpu/cpu.cfs_quota_us"), "-1\n")
	write(t, filepath.Join(mount, "memory/m/n/memory.limit_in_bytes"), "9223372036854771712\n")
	write(t, filepath.Join(mount, "memory/m/memory.limit_in_bytes"), "4096\n")
	if got := ownV1(mount, "/c", "/m/n"); got.CPU != 500 || got.Memory != 4096 {
		t.Errorf("version 1: %+v", got)
	}
	if got := ownV1(mount, "/", "/"); got.CPU != 0 || got.Memory != 0 {
		t.Errorf("no limit: %+v", got)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
