package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/load"
	"github.com/faas-infer/faas-infer/report"
)

// Sharing starts instances of one prepared model one after another and measures
// each across processes: the time to load the model, and how much of its memory
// is its own. The weights are mapped, so that they are in the page cache once.
func Sharing(ctx context.Context, o Options, name string) (*report.Report, error) {
	s, err := newSubject(name)
	if err != nil {
		return nil, err
	}
	defer s.close()
	prepared, err := o.Models.Prepare(ctx, s.file)
	if err != nil {
		return nil, err
	}
	r := report.New("bench sharing --model "+name, time.Now())
	var running []*child
	defer func() {
		for _, c := range running {
			c.stop()
		}
	}()
	for _, way := range []struct{ name, flag, value string }{
		{"unprepared", "--model", s.file}, {"first", "--prepared", prepared}, {"second", "--prepared", prepared},
	} {
		socket := filepath.Join(s.dir, way.name+".sock")
		c, err := o.start("instance", way.flag, way.value, "--name", functionName, "--listen", "unix://"+socket)
		if err != nil {
			return nil, err
		}
		running = append(running, c)
		if err := c.answersOver(ctx, socket); err != nil {
			return nil, err
		}
		target, err := s.target("http://instance/")
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
		r.Add(way.name+".load_ms", median(parts["model"]), "ms", "time to load the model")
		if way.name == "unprepared" {
			// Alone, so that what it shares with nobody shows.
			if err := addMemory(r, c.Process.Pid, way.name); err != nil {
				return nil, err
			}
			c.stop()
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

// addMemory adds what a process holds.
func addMemory(r *report.Report, pid int, name string) error {
	held, err := mapped(pid)
	if err != nil {
		return err
	}
	r.Add(name+".private_mib", held["Private_Clean"]+held["Private_Dirty"], "MiB", "memory of its own")
	r.Add(name+".shared_mib", held["Shared_Clean"]+held["Shared_Dirty"], "MiB", "memory that other processes map too")
	return nil
}

// mapped is what a process holds, in MiB by kind, from /proc/PID/smaps_rollup.
func mapped(pid int) (map[string]float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sums := map[string]float64{}
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) == 3 && fields[2] == "kB" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				return nil, err
			}
			sums[strings.TrimSuffix(fields[0], ":")] = kib / 1024
		}
	}
	return sums, nil
}
