package measuring

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/backoff"
)

const (
	// stretch is the time of sampling between two readings of the yardstick,
	// stretches the minimum number of these.
	stretch   = 5 * time.Millisecond
	stretches = 3
	// representative is the quantile of an undisturbed run. It is below the median,
	// since a disturbance only adds time.
	representative = 0.4
	// quiet is the maximum pace of a quiet machine.
	quiet = 1.13
	// crowded is the part of one core that other processes may use while
	// several threads are measured.
	crowded = 0.1
	// look is the time between two readings while waiting for a quiet machine.
	look = 20 * time.Millisecond
)

// Budget limits the measurement of one figure.
type Budget struct {
	// Runs is the minimum number of samples, MinTime the minimum time.
	Runs    int
	MinTime time.Duration
	// MaxTime is the maximum wait for Runs samples on the quiet machine. After it
	// samples from a noisy machine are enough, at least 3.
	MaxTime time.Duration
	// Threads is the number of threads of a run, 0 for 1.
	Threads int
}

// Sample summarises the times of several executions, in µs.
type Sample struct {
	// Typical is the time at the quiet machine's pace; Median and P95 are not
	// converted; CPU is processor time at the quiet machine's pace.
	Typical, Median, P95, CPU float64
	// Spread is the interquartile range of the samples, at the quiet machine's
	// pace, over Typical.
	Spread float64
	Runs   int
	// Noisy is true if the machine did not become quiet, or other processes used
	// the cores.
	Noisy bool
	// Pace is the yardstick's mean during the measurement, 1 on the quiet machine.
	Pace float64
}

// Sampler measures times. It is not safe for concurrent use.
type Sampler struct {
	yard *yardstick
	// Taken counts all samples, Loud those above the quiet pace.
	Taken, Loud int
}

// NewSampler makes a sampler. known is the [Sampler.Yardstick] of an earlier one on this
// machine, or 0. onnxruntime.Load must have succeeded before.
func NewSampler(known float64) (*Sampler, error) {
	y, err := newYardstick(known)
	if err != nil {
		return nil, err
	}
	return &Sampler{yard: y}, nil
}

// Yardstick is the yardstick's time on the quiet machine, in µs. Figures are for the
// machine at that pace. since is the time when this process found the base; older
// figures are doubtful. It is zero if the base was known before.
func (s *Sampler) Yardstick() (base float64, since time.Time) { return s.yard.base, s.yard.since }

// Close frees the yardstick.
func (s *Sampler) Close() error { return s.yard.close() }

// taken are the samples of one stretch, in µs, and the pace around them.
type taken struct {
	wall, cpu []float64
	pace      float64
}

func (t taken) calm() bool { return t.pace < quiet }

// Take calls run until the budget is used. before, which may be nil, prepares each run
// and is not measured.
func (s *Sampler) Take(ctx context.Context, b Budget, before func(), run func() error) (Sample, error) {
	if err := run(); err != nil { // The first run allocates and faults pages in.
		return Sample{}, err
	}
	var all []taken
	calm, runs := 0, 0
	began, others := time.Now(), newOthers()
	pace, err := s.yard.read()
	if err != nil {
		return Sample{}, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return Sample{}, err
		}
		t, err := stretchOf(before, run)
		if err != nil {
			return Sample{}, err
		}
		after, err := s.yard.read()
		if err != nil {
			return Sample{}, err
		}
		t.pace = (pace + after) / 2
		pace = after
		all = append(all, t)
		runs += len(t.wall)
		if t.calm() {
			calm += len(t.wall)
		}
		elapsed := time.Since(began)
		if calm >= b.Runs && len(all) >= min(b.Runs, stretches) && elapsed >= b.MinTime || elapsed >= b.MaxTime && runs >= min(b.Runs, 3) {
			s.Taken, s.Loud = s.Taken+runs, s.Loud+runs-calm
			r := summarise(all, min(b.Runs, 3))
			r.Noisy = r.Noisy || others.share() > crowded && b.Threads > 1
			return r, nil
		}
	}
}

// stretchOf runs for the length of a stretch. Runs during which the thread lost its core
// count only if there are no others.
func stretchOf(before func(), run func() error) (taken, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var good, bad taken
	for began := time.Now(); ; {
		if before != nil {
			before()
		}
		lost, used := switches(), processorTime()
		start := time.Now()
		if err := run(); err != nil {
			return good, err
		}
		wall, cpu := micros(time.Since(start)), micros(processorTime()-used)
		to := &good
		if switches() != lost {
			to = &bad
		}
		to.wall, to.cpu = append(to.wall, wall), append(to.cpu, cpu)
		if time.Since(began) < stretch {
			continue
		}
		if len(good.wall) == 0 {
			return bad, nil
		}
		return good, nil
	}
}

// AwaitQuiet returns when the machine is quiet, or at the time end.
func (s *Sampler) AwaitQuiet(ctx context.Context, end time.Time) error {
	for time.Now().Before(end) {
		pace, err := s.yard.read()
		if err != nil || pace < quiet {
			return err
		}
		if !backoff.Wait(ctx, look) {
			break
		}
	}
	return ctx.Err()
}

// others measures the CPU time of other processes.
type others struct {
	began     time.Time
	all, self time.Duration
}

func newOthers() others { return others{time.Now(), busyTime(), processorTime()} }

// share is the CPU time of other processes since then, in cores.
func (o others) share() float64 {
	elapsed := time.Since(o.began)
	return max(0, float64(busyTime()-o.all-(processorTime()-o.self))/float64(elapsed))
}

// busyTime is the CPU time of all processes so far, in steps of a hundredth of a second;
// 0 if the kernel does not give it.
func busyTime() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), "\n")
	busy := 0
	for i, field := range strings.Fields(first) {
		n, err := strconv.Atoi(field)
		// user nice system idle iowait irq softirq steal guest …
		if i >= 1 && i != 4 && i != 5 && i <= 8 && err == nil {
			busy += n
		}
	}
	return time.Duration(busy) * time.Second / 100
}

// switches is the number of times that the calling thread lost its core to others.
func switches() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0
	}
	return u.Nivcsw
}

func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// floats are n random numbers in [-1, 1), as bytes of float32.
func floats(n int) []byte {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	out := make([]byte, 0, 4*n)
	for range n {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(2*rng.Float32()-1))
	}
	return out
}
