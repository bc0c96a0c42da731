package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/report"
)

// Memory measures what a provider takes when it does nothing, with no function
// and with many at zero instances, and what it uses of a core meanwhile.
func Memory(ctx context.Context, o Options, functions int) (*report.Report, error) {
	s, err := newSubject("identity")
	if err != nil {
		return nil, err
	}
	defer s.close()
	d, err := o.provider(ctx, s.dir)
	if err != nil {
		return nil, err
	}
	defer d.stop()
	r := report.New("bench memory", time.Now())
	if err := d.atRest(ctx, r, "idle", "no function"); err != nil {
		return nil, err
	}
	if err := d.bundle(s, "subject:latest"); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "deploying %d functions\n", functions)
	for i := range functions {
		if err := d.deploy(ctx, fmt.Sprintf("subject-%d", i), "subject:latest", 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return r, d.atRest(ctx, r, "functions", fmt.Sprintf("%d functions at zero instances", functions))
}

// atRest lets the provider settle and looks at it for two seconds.
func (d *deployed) atRest(ctx context.Context, r *report.Report, name, note string) error {
	for _, wait := range []time.Duration{3 * time.Second, 2 * time.Second} {
		before, err := processorTime(d.Process.Pid)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		after, err := processorTime(d.Process.Pid)
		if err != nil {
			return err
		}
		if wait == 2*time.Second {
			r.Add(name+".cpu_pct", 100*(after-before).Seconds()/wait.Seconds(), "% of a core", note)
		}
	}
	resident, err := statusField(d.Process.Pid, "VmRSS")
	if err != nil {
		return err
	}
	r.Add(name+".rss_mib", resident/1024, "MiB", note)
	return nil
}

// statusField reads a field of /proc/PID/status, in its own unit (kB).
func statusField(pid int, field string) (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), ":")
		if name == field {
			return strconv.ParseFloat(strings.Fields(value)[0], 64)
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, field)
}

// processorTime is what a process has used, from /proc/PID/stat in ticks of
// 10 ms.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold spaces; utime and stime are the 12th
	// and 13th fields after it.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("process %d: unexpected stat line", pid)
	}
	var ticks int
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}
