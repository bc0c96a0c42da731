package bench

import (
	"context"
	"path/filepath"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// Sharing starts instances of one prepared model, one after another. It measures the time
// to load the model, and how much of each process's memory is private. Instances map the
// weights, so the page cache holds them once.
func Sharing(ctx context.Context, o rig.Options, name string) (*report.Report, error) {
	s, err := rig.NewSubject(name)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	prepared, err := o.Models.Prepare(ctx, s.File)
	if err != nil {
		return nil, err
	}
	r := report.New("bench sharing --model "+name, time.Now())
	var running []*rig.Child
	defer func() {
		for _, c := range running {
			c.Stop()
		}
	}()
	for _, way := range []struct{ name, flag, value string }{
		{"unprepared", "--model", s.File}, {"first", "--prepared", prepared}, {"second", "--prepared", prepared},
	} {
		socket := filepath.Join(s.Dir, way.name+".sock")
		c, err := o.Start("instance", way.flag, way.value, "--name", rig.FunctionName, "--listen", "unix://"+socket)
		if err != nil {
			return nil, err
		}
		running = append(running, c)
		if err := c.AnswersOver(ctx, socket); err != nil {
			return nil, err
		}
		target, err := s.Target("http://instance/")
		if err != nil {
			return nil, err
		}
		target.Socket = socket
		if _, err := load.RunClosed(ctx, target, 1, 500*time.Millisecond); err != nil {
			return nil, err
		}
		parts := map[string][]float64{}
		if err := startup(ctx, socket, parts); err != nil {
			return nil, err
		}
		r.Add(way.name+".load_ms", rig.Median(parts["model"]), "ms", "time to load the model")
		if way.name == "unprepared" {
			// It runs alone, so its memory that others could share counts as private.
			if err := addMemory(r, c.Process.Pid, way.name); err != nil {
				return nil, err
			}
			c.Stop()
			running = nil
		}
	}
	for i, c := range running {
		if err := addMemory(r, c.Process.Pid, []string{"first", "second"}[i]); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// addMemory adds a process's private and shared memory.
func addMemory(r *report.Report, pid int, name string) error {
	held, err := rig.Mapped(pid)
	if err != nil {
		return err
	}
	r.Add(name+".private_mib", held["Private_Clean"]+held["Private_Dirty"], "MiB", "memory of its own")
	r.Add(name+".shared_mib", held["Shared_Clean"]+held["Shared_Dirty"], "MiB", "memory that other processes map too")
	return nil
}
