package faults

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/lab/rig"
)

// A clock is moved for single processes, in their own memory: setting the machine's would
// move it for everybody, time namespaces have no wall clock, and libfaketime does nothing
// for Go, which does not ask libc. All ask the kernel's vDSO, of which a process gets a
// copy of its own when it is written to: its clock_gettime is replaced by one that makes
// the system call and adds so many seconds to CLOCK_REALTIME.
//
//	mov  eax, SYS_clock_gettime
//	syscall
//	test edi, edi           ; CLOCK_REALTIME is 0
//	jne  end
//	add  qword [rsi], shift
//	end: ret
var shiftedClock = []byte{0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 0x07, 0x48, 0x81, 0x06, 0, 0, 0, 0, 0xc3}

// shiftAt is where the seconds are in it.
const shiftAt = 14

// clock is a process whose clock can be moved.
type clock struct {
	pid     int
	address int64
}

// newClock replaces a process's clock.
func newClock(pid int) (c clock, err error) {
	if runtime.GOARCH != "amd64" {
		return c, fmt.Errorf("%w: there is code for amd64 only", errNotHere)
	}
	address, size, err := findClock(pid)
	if err != nil {
		return c, err
	}
	if size < uint64(len(shiftedClock)) {
		return c, fmt.Errorf("%w: the kernel's clock has only %d bytes", errNotHere, size)
	}
	c = clock{pid, int64(address)}
	// Nobody may be within while it is written.
	for range 100 {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return c, err
		}
		free := c.nobodyWithin(size)
		if free {
			err = c.write(c.address, shiftedClock)
		}
		if err := errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)); err != nil {
			return c, err
		}
		if free {
			return c, nil
		}
		time.Sleep(time.Millisecond)
	}
	return c, fmt.Errorf("process %d is always reading its clock", pid)
}

// findClock finds the vDSO's clock_gettime in a process.
func findClock(pid int) (address, size uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		var begin, end uint64
		if _, err := fmt.Sscanf(line, "%x-%x", &begin, &end); err != nil {
			return 0, 0, err
		}
		memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
		if err != nil {
			return 0, 0, err
		}
		defer memory.Close()
		image := make([]byte, end-begin)
		if _, err := io.ReadFull(io.NewSectionReader(memory, int64(begin), int64(len(image))), image); err != nil {
			return 0, 0, err
		}
		file, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			return 0, 0, err
		}
		symbols, err := file.DynamicSymbols()
		at := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "__vdso_clock_gettime" })
		if err != nil || at < 0 {
			return 0, 0, errors.Join(fmt.Errorf("%w: the vDSO has no clock_gettime", errNotHere), err)
		}
		return begin + symbols[at].Value, symbols[at].Size, nil
	}
	return 0, 0, fmt.Errorf("%w: process %d has no vDSO", errNotHere, pid)
}

// nobodyWithin reports whether all threads have stopped outside the clock's code.
func (c clock) nobodyWithin(size uint64) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", c.pid))
	if err != nil {
		return false
	}
	for _, thread := range threads {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", c.pid, thread.Name()))
		if err != nil {
			return false
		}
		// "running", or what is being done, with the stack's and the code's address last.
		fields := strings.Fields(string(text))
		at, err := strconv.ParseUint(fields[len(fields)-1], 0, 64)
		if err != nil || at >= uint64(c.address) && at < uint64(c.address)+size {
			return false
		}
	}
	return true
}

func (c clock) write(address int64, b []byte) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	defer memory.Close()
	if _, err := memory.WriteAt(b, address); err != nil {
		return fmt.Errorf("%w: write to process %d: %w", errNotHere, c.pid, err)
	}
	return nil
}

// move sets by how much the clock differs from the kernel's, in whole seconds.
func (c clock) move(by time.Duration) error {
	shift := binary.LittleEndian.AppendUint32(nil, uint32(int32(by/time.Second)))
	err := c.write(c.address+shiftAt, shift)
	if _, gone := os.Stat(fmt.Sprintf("/proc/%d", c.pid)); gone != nil {
		return nil
	}
	return err
}

// patchClocks replaces the clocks of the provider, the gateway and all instances.
func patchClocks(ctx context.Context, t *trial) error {
	records, err := t.world.records()
	if err != nil {
		return err
	}
	all, err := processes()
	if err != nil {
		return err
	}
	pids := []int{t.world.now().Process.Pid, t.world.gatewayPID}
	for _, r := range records {
		pids = append(append(pids, r.Process.PID), descendants(all, r.Process.PID)...)
	}
	// Processes with the kernel's own clock take their place afterwards.
	t.restored(func(ctx context.Context) error { return t.world.restart(ctx, t.world.place) })
	for _, pid := range pids {
		c, err := newClock(pid)
		if err != nil {
			return err
		}
		t.clocks = append(t.clocks, c)
	}
	return t.world.awaitWell(ctx, t.functions, t.SLO, wellWithin)
}

func clockMoved(ctx context.Context, t *trial) error {
	t.after(func(context.Context) error { return t.moveClocks(0) })
	before, err := t.world.records()
	if err != nil {
		return err
	}
	most := len(before)
	steps := []time.Duration{time.Hour, -time.Hour, 0}
	for _, by := range steps {
		if err := t.moveClocks(by); err != nil {
			return err
		}
		if err := t.checkMoved(ctx, by); err != nil {
			return err
		}
		if err := rig.Pause(ctx, t.fault.lasts/time.Duration(len(steps))); err != nil {
			return err
		}
		now, err := t.world.records()
		if err != nil {
			return err
		}
		most = max(most, len(now))
	}
	t.say("%d instances before, %d at most", len(before), most)
	t.must(most <= 2*len(before)+2, "instances multiply")
	return nil
}

// checkMoved asks the provider for the time.
func (t *trial) checkMoved(ctx context.Context, by time.Duration) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.world.now().URL+"/healthz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	date, err := http.ParseTime(response.Header.Get("Date"))
	if off := time.Until(date) - by; err != nil || off.Abs() > time.Minute {
		return errors.Join(fmt.Errorf("%w: the provider's time is %q, so its clock did not move", errNotHere, response.Header.Get("Date")), err)
	}
	return nil
}

func (t *trial) moveClocks(by time.Duration) error {
	var errs []error
	for _, c := range t.clocks {
		errs = append(errs, c.move(by))
	}
	return errors.Join(errs...)
}
