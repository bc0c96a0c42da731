package profiler

import (
	"context"
	"errors"
	"testing"
	"time"
)

// fakeDevice takes 1 ms and 100 µs per request at its full clock, which it reaches after
// warm. All of that is on clock.
type fakeDevice struct {
	clock, cpu *time.Duration
	warm       time.Duration
	fails      error
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

// measured runs a plan on a device that needs half a second to reach its clock.
func measured(t *testing.T, plan DevicePlan, fails error) ([]Measurement, error) {
	t.Helper()
	var clock, cpu time.Duration
	plan.Window, plan.MaxTime = 20*time.Millisecond, 2*time.Second
	plan.Now = func() time.Time { return time.Unix(0, 0).Add(clock) }
	plan.CPU = func() time.Duration { return cpu }
	return MeasureDevice(t.Context(), &fakeDevice{clock: &clock, cpu: &cpu, warm: 500 * time.Millisecond, fails: fails}, plan)
}

// The times are those of the settled clock.
func TestMeasureDevice(t *testing.T) {
	ms, err := measured(t, DevicePlan{GPU: 40, Batches: []int{8, 1, 4}}, nil)
	if err != nil || len(ms) != 3 {
		t.Fatalf("%v, %v", ms, err)
	}
	for i, b := range []int{1, 4, 8} {
		m := ms[i]
		want := 1000 + 100*float64(b)
		if m.Batch != b || m.GPU != 40 || m.Threads != 1 || m.Median != want || m.P95 != want || m.CPU < 0.09*want || m.CPU > 0.11*want ||
			m.In != float64(b) || m.Out != 1 || m.Compute != 5 || m.Runs < 15 {
			t.Errorf("%v: %v µs, P95 %v, CPU %v, %v in, %v out, %d runs; want %v µs", m, m.Median, m.P95, m.CPU, m.In, m.Out, m.Runs, want)
		}
	}
	if err := devices(ms...).Validate(); err != nil {
		t.Error(err)
	}
}

// Batches are measured up to the first too slow one.
func TestMeasureDeviceUntil(t *testing.T) {
	ms, err := measured(t, DevicePlan{GPU: 40, Batches: []int{1, 4, 8, 16}, Until: 1300 * us}, nil)
	if err != nil || len(ms) != 2 || ms[1].Batch != 4 {
		t.Errorf("%v, %v", ms, err)
	}
}

func TestMeasureDeviceFails(t *testing.T) {
	if _, err := measured(t, DevicePlan{GPU: 40, Batches: []int{1}}, errors.ErrUnsupported); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	for _, p := range []DevicePlan{{GPU: 40}, {GPU: 0, Batches: []int{1}}, {GPU: 101, Batches: []int{1}}, {GPU: 5, Batches: []int{0}}} {
		if _, err := measured(t, p, nil); err == nil {
			t.Errorf("%+v has no error", p)
		}
	}
}
