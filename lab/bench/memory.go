package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// Memory measures the memory and the CPU use of an idle provider, without functions and
// with many at zero instances.
func Memory(ctx context.Context, o rig.Options, functions int) (*report.Report, error) {
	s, err := rig.NewSubject("identity")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	d, err := o.Provider(ctx, s.Dir)
	if err != nil {
		return nil, err
	}
	defer d.Stop()
	r := report.New("bench memory", time.Now())
	if err := atRest(ctx, d, r, "idle", "no function"); err != nil {
		return nil, err
	}
	if err := d.Bundle(s, "subject:latest"); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Log, "deploying %d functions\n", functions)
	for i := range functions {
		if err := d.Deploy(ctx, fmt.Sprintf("subject-%d", i), "subject:latest", 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return r, atRest(ctx, d, r, "functions", fmt.Sprintf("%d functions at zero instances", functions))
}

// atRest lets the provider settle for three seconds and measures it for two.
func atRest(ctx context.Context, d *rig.Deployed, r *report.Report, name, note string) error {
	for _, wait := range []time.Duration{3 * time.Second, 2 * time.Second} {
		before, err := rig.ProcessorTime(d.Process.Pid)
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		after, err := rig.ProcessorTime(d.Process.Pid)
		if err != nil {
			return err
		}
		if wait == 2*time.Second {
			r.Add(name+".cpu_pct", 100*(after-before).Seconds()/wait.Seconds(), "% of a core", note)
		}
	}
	resident, err := rig.StatusField(d.Process.Pid, "VmRSS")
	if err != nil {
		return err
	}
	r.Add(name+".rss_mib", resident/1024, "MiB", note)
	return nil
}
