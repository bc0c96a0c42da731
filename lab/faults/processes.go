package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// pick is an instance, of the function whose turn it is if that has one: the seed says
// with which they begin.
func (t *trial) pick(turn int) (rig.InstanceRecord, error) {
	records, err := t.world.records()
	if err != nil {
		return rig.InstanceRecord{}, err
	}
	name := t.functions[(int(t.Seed%uint64(len(t.functions)))+turn)%len(t.functions)].name
	var its []rig.InstanceRecord
	for _, r := range records {
		if strings.HasPrefix(r.Spec.Function, name+".") {
			its = append(its, r)
		}
	}
	if len(its) == 0 {
		its = records
	}
	if len(its) == 0 {
		return rig.InstanceRecord{}, errors.New("there is no instance")
	}
	r := its[t.rng.IntN(len(its))]
	t.say("an instance of %s", r.Spec.Function)
	return r, nil
}

func killed(ctx context.Context, t *trial) error {
	for i := range 5 {
		r, err := t.pick(t.repeat + i)
		if err != nil {
			return err
		}
		if err := syscall.Kill(r.Process.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		if err := rig.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

func stopped(_ context.Context, t *trial) error {
	r, err := t.pick(t.repeat)
	if err != nil {
		return err
	}
	return t.world.signalAll(r, syscall.SIGSTOP)
}

// slowed sets the quota behind the provider's back, and sets it back.
func slowed(ctx context.Context, t *trial) error {
	r, err := t.pick(t.repeat)
	if err != nil {
		return err
	}
	dir, version, err := cgroupDir(r.Process.PID, "cpu")
	if err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	if _, ok := treeOf(dir); !ok {
		return fmt.Errorf("%w: instances have no cgroups", errNotHere)
	}
	// An ordinary function's quota is of the group within.
	for _, within := range []string{filepath.Join(dir, "function"), filepath.Join(filepath.Dir(dir), "function")} {
		if _, err := os.Stat(within); err == nil {
			dir = within
			break
		}
	}
	q := quota{dir, version}
	before, err := q.read()
	if err != nil {
		return err
	}
	millicores := 1000 // A tenth of a core where there is no quota.
	if before.quota > 0 {
		millicores = int(before.quota * 1000 / before.period)
	}
	amount, period := cgroup.Quota(max(1, millicores/10))
	if err := q.write(bandwidth{amount, int64(period)}); err != nil {
		return err
	}
	t.after(func(context.Context) error {
		if err := q.write(before); !errors.Is(err, os.ErrNotExist) { // It may have been replaced.
			return err
		}
		return nil
	})
	if err := rig.Pause(ctx, t.fault.lasts); err != nil {
		return err
	}
	return t.undo(ctx)
}

// bandwidth is a CPU quota in a period, both in µs; none if it is not above 0.
type bandwidth struct{ quota, period int64 }

// quota is that of a cgroup.
type quota struct {
	dir     string
	version int
}

func (q quota) read() (b bandwidth, err error) {
	if q.version == 2 {
		text, err := os.ReadFile(filepath.Join(q.dir, "cpu.max"))
		if err != nil {
			return b, err
		}
		var amount string
		if _, err := fmt.Sscan(string(text), &amount, &b.period); err != nil {
			return b, fmt.Errorf("%s/cpu.max: %w", q.dir, err)
		}
		b.quota, err = strconv.ParseInt(amount, 10, 64)
		if err != nil {
			b.quota = -1
		}
		return b, nil
	}
	for file, n := range map[string]*int64{"cpu.cfs_quota_us": &b.quota, "cpu.cfs_period_us": &b.period} {
		text, err := os.ReadFile(filepath.Join(q.dir, file))
		if err != nil {
			return b, err
		}
		if *n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return b, fmt.Errorf("%s/%s: %w", q.dir, file, err)
		}
	}
	return b, nil
}

func (q quota) write(b bandwidth) error {
	if q.version == 2 {
		amount := "max"
		if b.quota > 0 {
			amount = fmt.Sprint(b.quota)
		}
		return os.WriteFile(filepath.Join(q.dir, "cpu.max"), fmt.Appendf(nil, "%s %d", amount, b.period), 0)
	}
	// Between the two there is no quota, or it could be too small for the period.
	for _, set := range []struct {
		file  string
		value int64
	}{{"cpu.cfs_quota_us", -1}, {"cpu.cfs_period_us", b.period}, {"cpu.cfs_quota_us", b.quota}} {
		if err := os.WriteFile(filepath.Join(q.dir, set.file), fmt.Append(nil, set.value), 0); err != nil {
			return err
		}
	}
	return nil
}

func providerKilled(_ context.Context, t *trial) error {
	t.expectEnds++
	return t.world.now().Process.Kill()
}

func allKilled(_ context.Context, t *trial) error {
	records, err := t.world.records()
	if err != nil {
		return err
	}
	t.expectEnds++
	errs := []error{t.world.now().Process.Kill()}
	for _, r := range records {
		errs = append(errs, t.world.signalAll(r, syscall.SIGKILL))
	}
	return errors.Join(errs...)
}

func coresTaken(ctx context.Context, t *trial) error {
	for range t.Cores {
		spin, err := t.world.o.Start("bench", "spin")
		if err != nil {
			return err
		}
		t.after(func(context.Context) error { spin.Stop(); return nil })
	}
	if err := rig.Pause(ctx, t.fault.lasts); err != nil {
		return err
	}
	return t.undo(ctx)
}

func redeployed(ctx context.Context, t *trial) error {
	t.restored(func(ctx context.Context) error {
		var errs []error
		for _, f := range t.functions {
			errs = append(errs, t.world.now().Update(ctx, f.deployment))
		}
		return errors.Join(errs...)
	})
	for i := range 9 {
		f := t.functions[i%len(t.functions)].deployment
		env := map[string]string{"generation": fmt.Sprint(t.run, ".", i)}
		maps.Copy(env, f.EnvVars)
		f.EnvVars = env
		if f.Annotations != nil { // A model's instances do not depend on the environment.
			annotations := map[string]string{"com.openfaas.infer.max-batch": fmt.Sprint(16 + (t.run+i/len(t.functions))%2)}
			for key, value := range *f.Annotations {
				annotations[key] = value
			}
			f.Annotations = &annotations
		}
		if err := t.world.now().Update(ctx, f); err != nil {
			return err
		}
		if err := rig.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// descriptors lets the provider open only a few more. A limit is on descriptors' numbers.
func descriptors(ctx context.Context, t *trial) error {
	pid := t.world.now().Process.Pid
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}
	highest := 0
	for _, e := range open {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			highest = max(highest, n)
		}
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		return fmt.Errorf("%w: prlimit: %w", errNotHere, err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(highest) + 4, Max: before.Max}, nil); err != nil {
		return fmt.Errorf("%w: prlimit: %w", errNotHere, err)
	}
	t.after(func(context.Context) error {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); !errors.Is(err, unix.ESRCH) {
			return err
		}
		return nil
	})
	head := func(int) string { return t.head(t.functions[0], 1<<20) }
	if err := strange(ctx, t, t.world.address, 50, 0, head, func(ctx context.Context, _ net.Conn) { <-ctx.Done() }); err != nil {
		return err
	}
	return t.undo(ctx)
}

// Spin computes, on one core, until ctx ends.
func Spin(ctx context.Context) {
	for ctx.Err() == nil {
		for range 1 << 20 {
		}
	}
}
