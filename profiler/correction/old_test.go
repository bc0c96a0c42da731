package correction

import (
	"math"
	"testing"
	"time"
)

// disturbed is a busy machine: most executions wait.
func disturbed(i int) float64 { return []float64{1.2, 2, 8, 30}[i%4] }

// The evidence of an earlier provider on a busy machine does not stop a class from being
// tried again. A restart believes a factor up to Believed, and new evidence soon counts
// for more.
func TestRestartAfterOverload(t *testing.T) {
	for _, quantile := range []float64{0.95, 0.99} {
		before := newSeries(profile(0), quantile, 1000, 4)
		before.run(2000, disturbed)
		if got := before.times(); got < 25 {
			t.Fatalf("the factor is %.1f while the machine is disturbed", got)
		}
		after := newSeries(profile(0), quantile, 1000, 4)
		after.at = before.at.Add(time.Second)
		if err := after.Restore(before.State(), after.at); err != nil {
			t.Fatal(err)
		}
		for _, share := range []int{250, 1000, 2000} {
			for k := range after.share(cores(share)).classes {
				if got := after.share(cores(share)).classes[k].factor; got > Believed*after.share(cores(share)).caution(k)*1.02 {
					t.Errorf("a restart multiplies batches up to %d at %dm by %.2f", 1<<k, share, got)
				}
			}
		}
		// Of 32 old ones, three quarters of them slow, 24 · e^(−2) = 3.2 are left after two
		// windows: the bound of the quantile is the 9th largest of 300, and of 1,500.
		after.run(2*int(math.Ceil(after.window())), always(1))
		near(t, "the factor once it is as predicted", after.times(), 1, 0.06)
	}
}

// A model that is slower than predicted stays so over a restart.
func TestRestartOfASlowModel(t *testing.T) {
	before := newSeries(profile(0), 0.99, 1000, 4)
	before.run(1000, always(1.8))
	after := New(profile(0), 0.99)
	if err := after.Restore(before.State(), before.at.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if was, is := before.Table(32, cores(1000)), after.Table(32, cores(1000)); Differ(was, is) {
		t.Errorf("%v before the restart, %v after it", was, is)
	}
}

// A share that was too slow to be used is tried again after a while without evidence, even
// if it had much before.
func TestOldEvidenceIsNotBelievedForLong(t *testing.T) {
	s := newSeries(profile(0), 0.99, 2000, 4)
	s.run(2000, disturbed)
	factor := func() float64 { return s.share(cores(2000)).classes[classOf(4)].factor }
	s.millicores = 1000
	s.run(int(old.Seconds()*10)-100, always(1))
	if got := factor(); got < 25 {
		t.Errorf("it is %.1f after less than %v", got, old)
	}
	s.run(200, always(1))
	if got := factor(); got > Believed*1.12 {
		t.Errorf("it is %.1f after more than %v", got, old)
	}
}

// Small batches of the same share go on. Their evidence replaces that of larger batches as
// fast as their own old evidence.
func TestEvidenceAgesWithItsShare(t *testing.T) {
	s := newSeries(profile(0), 0.99, 1000, 8)
	s.run(1000, disturbed)
	factor := func() float64 { return s.share(cores(1000)).classes[classOf(8)].factor }
	if got := factor(); got < 25 {
		t.Fatalf("it is %.1f while the machine is disturbed", got)
	}
	s.batch = 1
	s.run(int(s.window())-100, always(1))
	if got := factor(); got < 25 {
		t.Errorf("it is %.1f although not all was replaced", got)
	}
	s.run(200, always(1))
	if got := factor(); got > Believed*1.12 {
		t.Errorf("it is %.1f although all else was replaced", got)
	}
}

// Delays do not depend on the batch: 30 ms instead of 2 are 28 ms more, even for a batch
// that should take 33 ms. Typical times count in proportion.
func TestDelaysAreLentAsDelays(t *testing.T) {
	s := newSeries(profile(0), 0.95, 1000, 1)
	s.run(600, func(i int) float64 {
		if i%3 == 0 {
			return 15
		}
		return 1
	})
	near(t, "b = 1", s.times(), 15, 0.3)
	large, _ := s.ExecTime(32, cores(1000))
	want := (33 + 28) / 33.0
	if got := large.Seconds() * 1000 / 33; math.Abs(got-1.1*want) > 0.1*want {
		t.Errorf("b = 32: a factor of %.2f, want %.2f and the margin", got, want)
	}
	slow := newSeries(profile(0), 0.95, 1000, 1)
	slow.run(600, always(3))
	large, _ = slow.ExecTime(32, cores(1000))
	near(t, "b = 32 of a model that is always slower", large.Seconds()*1000/33, 3*1.1, 0.3)
}
