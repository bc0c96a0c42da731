package profiler

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// fakeDevice takes 1 ms and 100 µs per request at its full clock, which it reaches after
// warm. All of that is on clock.
type fakeDevice struct {
	clock, cpu *time.Duration
	warm       time.Duration
	opened     *[]int
	fails      error
	closed     *int
	largest    int
}

func (d *fakeDevice) Run(_ context.Context, batch int) (DeviceTimes, error) {
	took := time.Millisecond + time.Duration(batch)*100*us
	if *d.clock < d.warm {
		took *= 2
		took += (d.warm - *d.clock) / 100
	}
	*d.clock += took
	*d.cpu += took / 10
	return DeviceTimes{In: float64(batch), Compute: 5, Out: 1}, d.fails
}
func (d *fakeDevice) Memory() (int64, error) { return int64(d.largest) << 20, nil }
func (d *fakeDevice) Close() error           { *d.closed++; return nil }

// measured runs a plan on a device that needs half a second to reach its clock.
func measured(t *testing.T, plan DevicePlan, fails error) (ms []Measurement, opened []int, err error) {
	t.Helper()
	var clock, cpu time.Duration
	closed := 0
	plan.Window, plan.MaxTime = 20*time.Millisecond, 2*time.Second
	plan.Now = func() time.Time { return time.Unix(0, 0).Add(clock) }
	plan.CPU = func() time.Duration { return cpu }
	ms, err = MeasureDevice(t.Context(), func(maxBatch int) (DeviceRunner, error) {
		opened = append(opened, maxBatch)
		return &fakeDevice{clock: &clock, cpu: &cpu, warm: 500 * time.Millisecond, closed: &closed, largest: maxBatch, fails: fails}, nil
	}, plan, nil)
	if closed != len(opened) {
		t.Errorf("closed %d of %d", closed, len(opened))
	}
	return ms, opened, err
}

// The times are those of the settled clock.
func TestMeasureDevice(t *testing.T) {
	ms, opened, err := measured(t, DevicePlan{GPU: 40, Batches: []int{8, 1, 4}, Each: true}, nil)
	if err != nil || len(ms) != 3 || !slices.Equal(opened, []int{1, 4, 8}) {
		t.Fatalf("%v, %v, %v", ms, opened, err)
	}
	for i, b := range []int{1, 4, 8} {
		m := ms[i]
		want := 1000 + 100*float64(b)
		if m.Batch != b || m.GPU != 40 || m.Threads != 1 || m.Median != want || m.P95 != want || m.CPU < 0.09*want || m.CPU > 0.11*want ||
			m.In != float64(b) || m.Out != 1 || m.Compute != 5 || m.DeviceMemory != int64(b)<<20 || m.Runs < 15 {
			t.Errorf("%v: %v µs, P95 %v, CPU %v, %v in, %v out, %d bytes, %d runs; want %v µs", m, m.Median, m.P95, m.CPU, m.In, m.Out, m.DeviceMemory, m.Runs, want)
		}
	}
	if err := devices(ms...).Validate(); err != nil {
		t.Error(err)
	}
}

// One runner executes all batches if memory is not asked for, up to the first too slow one.
func TestMeasureDeviceUntil(t *testing.T) {
	ms, opened, err := measured(t, DevicePlan{GPU: 40, Batches: []int{1, 4, 8, 16}, Until: 1300 * us}, nil)
	if err != nil || len(ms) != 2 || ms[1].Batch != 4 || !slices.Equal(opened, []int{16}) || ms[0].DeviceMemory != 0 {
		t.Errorf("%v, %v, %v", ms, opened, err)
	}
}

func TestMeasureDeviceFails(t *testing.T) {
	if _, _, err := measured(t, DevicePlan{GPU: 40, Batches: []int{1}}, errors.ErrUnsupported); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	for _, p := range []DevicePlan{{GPU: 40}, {GPU: 0, Batches: []int{1}}, {GPU: 101, Batches: []int{1}}, {GPU: 5, Batches: []int{0}}} {
		if _, _, err := measured(t, p, nil); err == nil {
			t.Errorf("%+v has no error", p)
		}
	}
}
