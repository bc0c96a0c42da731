package faults

import (
	"bytes"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
)

func TestBadOptions(t *testing.T) {
	good := Bench{Repeat: 1, SLO: time.Second, After: time.Second}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for flag, change := range map[string]func(b *Bench){
		"--repeat": func(b *Bench) { b.Repeat = 0 }, "--slo": func(b *Bench) { b.SLO = 0 }, "--rate": func(b *Bench) { b.Rate = -1 },
		"--async": func(b *Bench) { b.Async = 1 }, "--after": func(b *Bench) { b.After = 0 }, "--soak": func(b *Bench) { b.Soak = time.Second },
		"--only": func(b *Bench) { b.Only = []string{"stopped", "meteor"} }, "--only is given": func(b *Bench) { b.Only, b.Soak = []string{"stopped"}, time.Hour },
	} {
		b := good
		change(&b)
		if err := b.Check(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// Every fault has a name that can be chosen and a sentence.
func TestCatalogue(t *testing.T) {
	var out strings.Builder
	if err := List(&out); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != len(catalogue) {
		t.Errorf("%d lines for %d faults", len(lines), len(catalogue))
	}
	seen := map[string]bool{}
	for _, f := range catalogue {
		if seen[f.name] || f.bring == nil || !strings.HasSuffix(f.sentence, ".") {
			t.Errorf("%+v", f)
		}
		seen[f.name] = true
	}
	two, err := chosen([]string{"forks", "killed"})
	if err != nil || len(two) != 2 || two[0].name != "killed" {
		t.Errorf("%v %v", two, err)
	}
}

// The names of results stay.
func TestResults(t *testing.T) {
	h := steady(5*time.Second, func(at time.Duration, _ string) bool { return at >= time.Second && at < 1900*ms })
	f := fault{name: "cores_taken", lasts: time.Second}
	o := judge(h, f, time.Second, 1800*ms)
	if o.recover != 250*ms || !o.recovered || o.during != (Share{6, 42}) || o.outside.within != o.outside.all {
		t.Errorf("%+v", o)
	}
	o.leaks, o.memory = Leaks{Processes: 1, MiB: 2}, 90
	var one total
	one.add(o)
	one.add(outcome{recover: 2 * time.Second, notes: []string{"twice"}})
	r := report.New("bench faults", time.Now())
	one.report(r, f)
	(&total{notRun: []error{errNotHere}}).report(r, fault{name: "clock"})
	one.reportAll(r)
	got := map[string]report.Result{}
	for _, x := range r.Results {
		got[x.Name] = x
	}
	for name, want := range map[string]float64{
		"cores_taken.lost": 0, "cores_taken.wrong": 0, "cores_taken.unbounded": 0, "cores_taken.within_slo_pct": 100, "cores_taken.within_slo_pct_during": 100.0 / 7,
		"cores_taken.recover_s": 2, "cores_taken.leaked": 3, "lost.all": 0, "wrong.all": 0, "unbounded.all": 0, "leaked.all": 3, "cores_taken.memory": 90, "memory.all": 90, "clock.not_run": 1,
	} {
		if x, ok := got[name]; !ok || math.Abs(x.Value-want) > 1e-9 {
			t.Errorf("%s is %+v, want %v", name, x, want)
		}
	}
	if len(got) != 14 || !strings.Contains(got["clock.not_run"].Note, "not run: ") || !strings.Contains(got["cores_taken.recover_s"].Note, "1 of 2") || !strings.Contains(got["cores_taken.leaked"].Note, "twice") {
		t.Errorf("%+v", got)
	}
}

func TestLeaked(t *testing.T) {
	before := Resources{Processes: 1, Cgroups: 2, Descriptors: 30, Goroutines: 100, MiB: 60}
	if l := leaked(before, Resources{1, 1, 30 + chanceDescriptors, 100 + chanceGoroutines, 60 + chanceMiB, nil}); l.sum() != 0 {
		t.Errorf("%v", l)
	}
	l := leaked(before, Resources{2, 4, 31 + chanceDescriptors, 101 + chanceGoroutines, 70 + chanceMiB, []string{"cat (S)"}})
	if l.Processes != 1 || l.Cgroups != 2 || l.Descriptors != 1+chanceDescriptors || l.Goroutines != 1+chanceGoroutines || l.MiB != 10+chanceMiB || !strings.Contains(l.String(), "cat") {
		t.Errorf("%v", l)
	}
}

func TestSlope(t *testing.T) {
	var points []point
	for i := range 10 {
		points = append(points, point{at: time.Duration(i) * time.Minute, held: held{mib: 100 + 2*float64(i) + []float64{1, -1}[i%2]}, p99: 20})
	}
	if got := slope(points, func(p point) float64 { return p.p99 }); math.Abs(got) > 1e-9 {
		t.Errorf("of the same value: %v", got)
	}
	if got := slope(points, func(p point) float64 { return p.mib }); math.Abs(got-120) > 5 {
		t.Errorf("of 2 a minute: %v", got)
	}
	if got := slope(points[:1], func(p point) float64 { return p.mib }); got != 0 {
		t.Errorf("of one point: %v", got)
	}
	for _, phase := range shapes(time.Hour) {
		for at := time.Duration(0); phase.shape != nil && at <= time.Hour; at += time.Minute {
			if part := phase.shape(at); part < 0.099 || part > 1.001 {
				t.Errorf("%s: %v at %v", phase.name, part, at)
			}
		}
	}
	h := steady(5*time.Second, func(at time.Duration, _ string) bool { return at == time.Second })
	if got := h.p99(); got != 10 {
		t.Errorf("p99 %v", got)
	}
}

// What is cut is closed, and so is what comes until it is mended.
func TestProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	defer func() { l.Close(); <-served }()
	p, err := newProxy(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	passes := func(c net.Conn) bool {
		got := make([]byte, 4)
		_, err := c.Write([]byte("ping"))
		if err == nil {
			_, err = io.ReadFull(c, got)
		}
		return err == nil && bytes.Equal(got, []byte("ping"))
	}
	before := dial()
	if !passes(before) {
		t.Error("nothing passes")
	}
	p.cut()
	if passes(before) || passes(dial()) {
		t.Error("something passes when it is cut")
	}
	p.mend()
	if !passes(dial()) {
		t.Error("nothing passes when it is mended")
	}
}

func TestProcesses(t *testing.T) {
	p, ok := parseProc([]byte("42 (a (strange) name) S 7 42 42 0 -1"))
	if !ok || p != (proc{7, "a (strange) name", 'S'}) {
		t.Errorf("%+v %v", p, ok)
	}
	for _, bad := range []string{"", "42 (x", "42 (x) S", "42 (x) S y"} {
		if p, ok := parseProc([]byte(bad)); ok {
			t.Errorf("%q is %+v", bad, p)
		}
	}
	all := map[int]proc{1: {}, 2: {parent: 1}, 3: {parent: 2}, 4: {parent: 9}}
	if got := descendants(all, 1); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if here, err := processes(); err != nil || here[os.Getpid()].parent != os.Getppid() {
		t.Errorf("%+v %v", here[os.Getpid()], err)
	}
}

func TestTreeOf(t *testing.T) {
	for dir, want := range map[string]string{
		"/sys/fs/cgroup/cpu/faas-infer-0123/one": "/sys/fs/cgroup/cpu/faas-infer-0123", "/sys/fs/cgroup/faas-infer-0123/one/main": "/sys/fs/cgroup/faas-infer-0123",
		"/sys/fs/cgroup/cpu/faas-infer-0123-provider": "", "/sys/fs/cgroup/user.slice": "", "/": "",
	} {
		if got, _ := treeOf(dir); got != want {
			t.Errorf("%s is in %q, want %q", dir, got, want)
		}
	}
}

func TestQuota(t *testing.T) {
	write := func(dir, file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	one, two := quota{t.TempDir(), 1}, quota{t.TempDir(), 2}
	write(one.dir, "cpu.cfs_quota_us", "5000\n")
	write(one.dir, "cpu.cfs_period_us", "10000\n")
	write(two.dir, "cpu.max", "max 100000\n")
	if b, err := one.read(); err != nil || b != (bandwidth{5000, 10000}) {
		t.Errorf("%+v %v", b, err)
	}
	if b, err := two.read(); err != nil || b != (bandwidth{-1, 100000}) {
		t.Errorf("%+v %v", b, err)
	}
	for _, q := range []quota{one, two} {
		for _, want := range []bandwidth{{2000, 20000}, {-1, 100000}} {
			if err := q.write(want); err != nil {
				t.Fatal(err)
			}
			if got, err := q.read(); err != nil || got != want {
				t.Errorf("version %d: %+v %v, want %+v", q.version, got, err, want)
			}
		}
	}
}
