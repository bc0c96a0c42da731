package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/lab/rig"
)

func natsCut(ctx context.Context, t *trial) error {
	t.world.proxy.cut()
	t.after(func(context.Context) error { t.world.proxy.mend(); return nil })
	if err := rig.Pause(ctx, t.fault.lasts); err != nil {
		return err
	}
	return t.undo(ctx)
}

// smallSize is the size of the small disk in bytes, beyond what the state takes: the queue
// takes nothing more below 64 MiB.
const smallSize = 256 << 20

// smallDisk moves the provider to a small file system.
func smallDisk(ctx context.Context, t *trial) error {
	if !t.world.alone {
		return fmt.Errorf("%w: it takes root and a mount namespace", errNotHere)
	}
	dir := filepath.Join(t.world.dir, "small")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	size := int64(smallSize)
	err := filepath.Walk(filepath.Join(t.world.place, "state"), func(_ string, info os.FileInfo, err error) error {
		if err == nil {
			size += info.Size()
		}
		return nil // Sockets and logs come and go.
	})
	if err != nil {
		return err
	}
	if err := unix.Mount("small", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=755", size)); err != nil {
		return fmt.Errorf("%w: mount a small file system: %w", errNotHere, err)
	}
	home := t.world.place
	t.restored(func(ctx context.Context) error {
		var err error
		if t.world.place != home {
			err = t.world.restart(ctx, home)
		}
		return errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
	})
	if err := t.world.restart(ctx, dir); err != nil {
		return err
	}
	return t.world.awaitWell(ctx, t.functions, t.SLO, wellWithin)
}

// diskFull fills the disk, and again what becomes free.
func diskFull(ctx context.Context, t *trial) error {
	file, err := os.Create(filepath.Join(t.world.place, "ballast"))
	if err != nil {
		return err
	}
	defer file.Close()
	t.after(func(context.Context) error { return os.Remove(file.Name()) })
	for end := time.Now().Add(t.fault.lasts); time.Now().Before(end); {
		for _, size := range []int{1 << 20, 1 << 12, 1} {
			for block := make([]byte, size); err == nil; {
				_, err = file.Write(block)
			}
			if !errors.Is(err, unix.ENOSPC) {
				return err
			}
			err = nil
		}
		if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return t.undo(ctx)
}

// pressed is the memory that instances may take beyond what they hold, in bytes.
const pressed = 16 << 20

// memoryPressure limits the memory of all instances together, and has a process take what
// is left, and again when the kernel has killed it.
func memoryPressure(ctx context.Context, t *trial) error {
	records, err := t.world.records()
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return errors.New("there is no instance")
	}
	dir, version, err := cgroupDir(records[0].Process.PID, "memory")
	if err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	tree, ok := treeOf(dir)
	if !ok {
		return fmt.Errorf("%w: instances have no cgroups for memory", errNotHere)
	}
	limit, usage, none := "memory.max", "memory.current", "max"
	if version == 1 {
		limit, usage, none = "memory.limit_in_bytes", "memory.usage_in_bytes", "-1"
	}
	text, err := os.ReadFile(filepath.Join(tree, usage))
	if err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	held, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return err
	}
	group := filepath.Join(tree, "bench")
	if err := os.Mkdir(group, 0o755); err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	t.after(func(ctx context.Context) error { return removeSoon(ctx, group) })
	if err := os.WriteFile(filepath.Join(tree, limit), fmt.Append(nil, held+pressed), 0); err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	t.after(func(context.Context) error { return os.WriteFile(filepath.Join(tree, limit), []byte(none), 0) })
	kills := 0
	for end := time.Now().Add(t.fault.lasts); time.Now().Before(end); kills++ {
		if err := hog(ctx, t, group, time.Until(end)); err != nil {
			return err
		}
		if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	t.say("the process was killed %d times", kills-1)
	return t.undo(ctx)
}

// hog takes memory in a cgroup for a time, or until it is killed.
func hog(ctx context.Context, t *trial, group string, d time.Duration) error {
	c, err := t.world.o.Start("bench", "take-memory", filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return err
	}
	defer c.Stop()
	timer := time.After(d)
	select {
	case <-c.Exited():
		return nil
	case <-timer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TakeMemory moves this process into a cgroup, by its file of processes, lets the kernel
// kill it before all others, and takes memory until ctx ends.
func TakeMemory(ctx context.Context, procs string) error {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0); err != nil {
		return err
	}
	if err := os.WriteFile(procs, fmt.Append(nil, os.Getpid()), 0); err != nil {
		return err
	}
	var held [][]byte
	const step, most = 1 << 20, 1 << 30
	for ctx.Err() == nil {
		if len(held) < most/step {
			held = append(held, make([]byte, step))
		}
		for _, block := range held { // Touched again and again, so that it stays.
			for i := 0; i < step; i += os.Getpagesize() {
				block[i]++
			}
		}
		if err := rig.Pause(ctx, time.Millisecond); err != nil {
			return nil
		}
	}
	return nil
}

// removeSoon removes a cgroup once the dead have left it.
func removeSoon(ctx context.Context, group string) error {
	for range 100 {
		err := os.Remove(group)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if rig.Pause(ctx, 50*time.Millisecond) != nil {
			break
		}
	}
	return fmt.Errorf("the cgroup %s cannot be removed", group)
}
