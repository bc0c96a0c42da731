package member_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
	"github.com/faas-infer/faas-infer/papers/gillis/member"
)

func TestMain(m *testing.M) {
	if err := onnxruntime.Load(""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// mnist cuts mnist over three members: its convolutions by height over all, then the rest on
// member 1, then on the master.
func mnist(t *testing.T) *bundle.Cutting {
	t.Helper()
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mnist.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	hash, err := model.ContentHash(file)
	if err != nil {
		t.Fatal(err)
	}
	return &bundle.Cutting{Source: file, Plan: cut.Plan{Model: hash, Members: 3, Rounds: []cut.Round{
		{First: 0, End: 2, Cut: "3x1", On: []int{0, 1, 2}}, {First: 2, End: 3, Cut: "whole", On: []int{1}}, {First: 3, End: 5, Cut: "whole", On: []int{0}},
	}}}
}

// here prepares a part in this process.
func here(_ context.Context, file, cache string) (string, error) {
	p, err := onnxruntime.Prepare(file, cache, onnxruntime.PrepareOptions{Lean: true})
	return p.Dir, err
}

func prepare(t *testing.T, c *bundle.Cutting, number int, cache string) *member.Parts {
	t.Helper()
	p, err := member.Prepare(t.Context(), c, number, cache, here)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A plan is prepared once, also by two at the same time, and nothing is left beside it. The
// parts of a grid have one file of weights if theirs are equal.
func TestPrepare(t *testing.T) {
	c, cache := mnist(t), t.TempDir()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if _, err := member.Prepare(t.Context(), c, member.All, cache, here); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	again, err := member.Prepare(t.Context(), c, member.All, cache, func(context.Context, string, string) (string, error) {
		t.Error("a part is prepared again")
		return "", context.Canceled
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(cache)
	if err != nil || len(entries) != 1 || filepath.Join(cache, entries[0].Name()) != again.Dir || !strings.HasPrefix(entries[0].Name(), "parts-") {
		t.Errorf("the cache has %v, %v; the parts are in %s", entries, err, again.Dir)
	}
	inside, err := os.ReadDir(again.Dir)
	if err != nil || len(inside) != 6 { // Five parts and the record.
		t.Errorf("%s has %v, %v", again.Dir, inside, err)
	}
	read, err := member.Read(again.Dir)
	if err != nil || read.Plan.Hash() != c.Plan.Hash() || read.Source != "mnist.onnx" {
		t.Errorf("%+v, %v", read, err)
	}
}

// Equal files are one file afterwards.
func TestEqualWeightsAreShared(t *testing.T) {
	c := mnist(t)
	n := 0
	p, err := member.Prepare(t.Context(), c, member.All, t.TempDir(), func(_ context.Context, _, cache string) (string, error) {
		n++
		dir := filepath.Join(cache, fmt.Sprint(n))
		content := strings.Repeat("w", 64<<10)
		if n == 2 {
			content = strings.Repeat("v", 64<<10)
		}
		return dir, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "weights.bin"), []byte(content), 0o644))
	})
	if err != nil {
		t.Fatal(err)
	}
	info := func(dir string) os.FileInfo {
		i, err := os.Stat(filepath.Join(p.Dir, dir, "weights.bin"))
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	first := info("round1-part1")
	if !os.SameFile(first, info("round1-part3")) || !os.SameFile(first, info("round3-part1")) || os.SameFile(first, info("round1-part2")) {
		t.Error("not the equal files are shared")
	}
}

// A member's own preparation has its parts only. The whole one serves it, too.
func TestPrepareOneMember(t *testing.T) {
	c, cache := mnist(t), t.TempDir()
	one := prepare(t, c, 2, cache)
	dirs := 0
	for _, round := range one.Rounds {
		for _, part := range round {
			if part.Dir != "" {
				dirs++
			}
		}
	}
	if dirs != 1 {
		t.Errorf("member 2 has %d parts", dirs)
	}
	if _, err := one.Master(member.Options{Threads: 1}); err == nil || !strings.Contains(err.Error(), "has the parts of member 2 only") {
		t.Errorf("the master opens it: %v", err)
	}
	all := prepare(t, c, member.All, cache)
	if again := prepare(t, c, 1, cache); again.Dir != all.Dir {
		t.Errorf("member 1 was prepared into %s", again.Dir)
	}
	for number, want := range map[int]string{3: "the plan has members 0 to 2", -2: "the plan has members 0 to 2"} {
		if _, err := member.Prepare(t.Context(), c, number, cache, here); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("member %d: %v", number, err)
		}
	}
}

func TestPlansOfOtherModels(t *testing.T) {
	c := mnist(t)
	c.Plan.Model = strings.Repeat("0", 64)
	if _, err := member.Prepare(t.Context(), c, member.All, t.TempDir(), here); err == nil || !strings.Contains(err.Error(), "the plan is of the model 000000000000") {
		t.Errorf("%v", err)
	}
}

// Parts are prepared first where loading them as they were cut needs too much memory, and
// preparing them does not.
func TestPrepareFirst(t *testing.T) {
	p := member.Parts{Rounds: [][]member.Part{{{Member: 1, Weights: 100}, {Member: 0, Weights: 1000}}, {{Member: 1, Weights: 50}}}}
	for memory, want := range map[int64]bool{0: false, 269: false, 270: true, 319: true, 320: false} {
		if got := p.PrepareFirst(1, memory); got != want {
			t.Errorf("parts of 100 and 50 bytes within %d: %v", memory, got)
		}
	}
	if p.PrepareFirst(0, 2699) {
		t.Error("preparing one part does not help")
	}
}

// set is a master and its workers at Unix sockets.
type set struct {
	master  *member.Master
	server  *httptest.Server
	workers []string
	whole   *onnxruntime.Engine
	input   []tensor.Tensor
	plan    string
}

func newSet(t *testing.T, concurrency int) *set {
	t.Helper()
	c := mnist(t)
	p := prepare(t, c, member.All, t.TempDir())
	o := member.Options{Threads: 1, Concurrency: concurrency}
	s := &set{plan: forkjoin.PlanName(&p.Plan)}
	var err error
	if s.master, err = p.Master(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.master.Close() })
	server, err := instance.NewServer(s.master, instance.Options{Name: "mnist", MaxBatch: 4, Threads: 1, Concurrency: concurrency, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	s.server = httptest.NewServer(s.master.Handler(server))
	t.Cleanup(s.server.Close)
	for number := 1; number < 3; number++ {
		s.workers = append(s.workers, s.worker(t, p, number, nil))
	}
	if s.whole, err = onnxruntime.Open(onnxruntime.Options{Model: c.Source, Threads: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.whole.Close() })
	m, err := model.ReadFile(c.Source)
	if err != nil {
		t.Fatal(err)
	}
	if s.input, err = m.SampleInputs(3, 1); err != nil {
		t.Fatal(err)
	}
	return s
}

// worker serves a member at a socket and returns its path. between is called with each request.
func (s *set) worker(t *testing.T, p *member.Parts, number int, between func()) string {
	t.Helper()
	w, err := p.Worker(number, member.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	h, err := w.Handler(instance.Options{MaxBatch: 4, Threads: 1, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if between != nil {
			between()
		}
		h.ServeHTTP(w, r)
	})}}
	server.Start()
	t.Cleanup(server.Close)
	return path
}

// tell tells the master where the workers are.
func (s *set) tell(t *testing.T) {
	t.Helper()
	var workers []forkjoin.Address
	for i, path := range s.workers {
		workers = append(workers, forkjoin.Address{Member: i + 1, Network: "unix", Address: path})
	}
	body, err := json.Marshal(map[string]any{"plan": s.plan, "workers": workers})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.server.URL+forkjoin.WorkersPath, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		t.Fatalf("the master answered %d", response.StatusCode)
	}
}

// ask sends a batch with one member, which must be answered within a time, 0 for no bound.
func (s *set) ask(t *testing.T, within time.Duration) frame.Response {
	t.Helper()
	buffers, _ := frame.EncodeRequests([]frame.Request{{Method: http.MethodPost, Path: "/", Header: http.Header{"Content-Type": {"application/octet-stream"}}, Body: s.input[0].Data}})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.server.URL+frame.Path, &buffers)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", frame.ContentType)
	r.Header.Set(frame.WithinHeader, fmt.Sprint(within.Microseconds()))
	response, err := s.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answers, err := frame.ReadResponses(response.Body, response.ContentLength)
	if err != nil || len(answers) != 1 {
		t.Fatalf("%d, %v, %v", response.StatusCode, answers, err)
	}
	return answers[0]
}

// A set answers as the whole model does, in batches too. Its metrics say how long the rounds
// took.
func TestASetAnswers(t *testing.T) {
	s := newSet(t, 1)
	s.tell(t)
	want, err := s.whole.Run(t.Context(), 3, s.input)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.master.Run(t.Context(), 3, s.input)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(want[0].Data); i += 4 {
		a, b := number(got[0].Data[i:]), number(want[0].Data[i:])
		if math.Abs(a-b) > 1e-6 {
			t.Fatalf("element %d is %g, not %g", i/4, a, b)
		}
	}
	if answer := s.ask(t, time.Minute); answer.Status != http.StatusOK {
		t.Errorf("%d %s", answer.Status, answer.Body)
	}
}

func number(b []byte) float64 { return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))) }

// A batch whose workers are unknown, or do not answer, ends when its time is over.
func TestASetIsLate(t *testing.T) {
	s := newSet(t, 1)
	if answer := s.ask(t, 20*time.Millisecond); answer.Status != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("without workers: %d %s", answer.Status, answer.Body)
	}
	silent, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	right := s.workers[1]
	s.workers[1] = silent.Addr().String()
	s.tell(t)
	if answer := s.ask(t, 20*time.Millisecond); answer.Status != http.StatusServiceUnavailable {
		t.Errorf("with a silent worker: %d %s", answer.Status, answer.Body)
	}
	s.workers[1] = right
	s.tell(t)
	if answer := s.ask(t, time.Minute); answer.Status != http.StatusOK {
		t.Errorf("afterwards: %d %s", answer.Status, answer.Body)
	}
}

// With a concurrency of two, two batches are at the workers at the same time: each of the two
// calls of a worker waits for the other.
func TestBatchesOverlap(t *testing.T) {
	s := newSet(t, 2)
	p := prepare(t, mnist(t), member.All, t.TempDir())
	var mu sync.Mutex
	here, both := 0, make(chan struct{})
	s.workers[1] = s.worker(t, p, 2, func() {
		mu.Lock()
		if here++; here == 2 {
			close(both)
		}
		mu.Unlock()
		<-both
	})
	s.tell(t)
	var asked sync.WaitGroup
	for range 2 {
		asked.Go(func() {
			if answer := s.ask(t, time.Minute); answer.Status != http.StatusOK {
				t.Errorf("%d %s", answer.Status, answer.Body)
			}
		})
	}
	asked.Wait()
}

// A worker answers for its own parts of its own plan, and says what it is otherwise.
func TestWorkersRefuse(t *testing.T) {
	s := newSet(t, 1)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.workers[1])
	}}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]string{
		"/v2/models/" + s.plan + "-1/ready":   "200 ",
		"/v2/models/" + s.plan + "-2/infer":   "404 {\"error\":\"there is no part \"" + s.plan + "-2\" here; this is member 2 of the plan " + s.plan + ", with the parts of rounds 1",
		"/v2/models/0123456789abcdef-1/infer": "404 {\"error\":\"there is no part \"0123456789abcdef-1\" here",
		"/v1/batch":                           "404 {\"error\":\"there is no /v1/batch here: this is a worker of a cut model",
		"/_/health":                           "200 ok",
		"/_/ready":                            "200 ok",
		"/v2/health/ready":                    "200 ",
		"/metrics":                            "200 ",
	} {
		response, err := client.Get("http://worker" + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		got := fmt.Sprintf("%d %s", response.StatusCode, strings.ReplaceAll(string(text), `\"`, `"`))
		if err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
}

// Records that are damaged, or for another machine, are refused with what is wrong.
func TestDamagedRecords(t *testing.T) {
	p := prepare(t, mnist(t), member.All, t.TempDir())
	file := filepath.Join(p.Dir, "parts.json")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for wrong, c := range map[string][2]string{
		"unexpected end":         {string(good[len(good)/2:]), ""},
		"has the format 9":       {`"format": 2`, `"format": 9`},
		"is for ONNX Runtime 9":  {`"engine": "`, `"engine": "9`},
		"is for the CPU 9":       {`"cpu": "`, `"cpu": "9`},
		"outside the directory":  {`"round1-part1"`, `"../round1-part1"`},
		"and the plan says":      {`"member": 2`, `"member": 1`},
		"is not of the shape":    {`"region": [`, `"region": [[0,99],`},
		"rounds for a plan with": {`"rounds": [`, `"rounds": [{"on":[0]},`},
	} {
		if err := os.WriteFile(file, []byte(strings.Replace(string(good), c[0], c[1], 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := member.Read(p.Dir); err == nil || !strings.Contains(err.Error(), wrong) || !strings.Contains(err.Error(), "cut it again") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// Parts of which a file is gone, or of another size, are prepared again.
func TestDamagedParts(t *testing.T) {
	c, cache := mnist(t), t.TempDir()
	for what, damage := range map[string]func(part string) error{
		"is gone": os.RemoveAll,
		"is empty": func(part string) error {
			files, err := filepath.Glob(filepath.Join(part, "*"))
			for _, file := range files {
				err = errors.Join(err, os.Truncate(file, 1))
			}
			return err
		},
	} {
		p := prepare(t, c, member.All, cache)
		if err := member.Use(p.Dir, time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := damage(filepath.Join(p.Dir, "round1-part2")); err != nil {
			t.Fatal(err)
		}
		if err := member.Use(p.Dir, time.Now()); err == nil || !strings.Contains(err.Error(), "part 2 of round 1 is damaged") {
			t.Errorf("a part %s: %v", what, err)
		}
		again := prepare(t, c, member.All, cache)
		w, err := again.Worker(1, member.Options{Threads: 1})
		if err != nil {
			t.Fatalf("a part %s: %v", what, err)
		}
		if err := w.Close(); err != nil || again.Dir != p.Dir {
			t.Errorf("%s, %v", again.Dir, err)
		}
	}
}

// Parts go when nobody has used them since a time.
func TestRemoveUnused(t *testing.T) {
	c, cache, now := mnist(t), t.TempDir(), time.Now()
	p := prepare(t, c, member.All, cache)
	other := filepath.Join(cache, "0123")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	remove := func(since time.Time, want int) {
		t.Helper()
		if removed, err := member.RemoveUnused(cache, since); err != nil || len(removed) != want {
			t.Errorf("%v, %v", removed, err)
		}
	}
	remove(now.Add(-time.Hour), 0)
	if err := member.Use(p.Dir, now.Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	prepare(t, c, member.All, cache) // That is a use.
	remove(now.Add(-time.Hour), 0)
	remove(now.Add(time.Hour), 1)
	if left, err := os.ReadDir(cache); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	remove(now.Add(time.Hour), 0)
}

func FuzzParts(f *testing.F) {
	f.Add([]byte(`{"format":2,"plan":{"model":"m","members":1,"rounds":[{"first":0,"end":1,"cut":"whole","on":[0]}]},"rounds":[[{"member":0,"dir":"a"}]]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "parts.json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := member.Read(dir)
		if err != nil {
			return
		}
		if m, err := p.Master(member.Options{Threads: 1}); err == nil {
			m.Close()
		}
		if w, err := p.Worker(1, member.Options{Threads: 1}); err == nil {
			w.Close()
		}
	})
}

// What a process left that was killed while it prepared parts is removed, and what another one prepares is not.
func TestWhatKilledProcessesLeave(t *testing.T) {
	c, cache := mnist(t), t.TempDir()
	for name, age := range map[string]time.Duration{".parts-old": 25 * time.Hour, ".parts-now": 0} {
		dir := filepath.Join(cache, name)
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "round1-part1"), 0o755), os.Chtimes(dir, time.Time{}, time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	prepare(t, c, member.All, cache)
	left, err := filepath.Glob(filepath.Join(cache, ".parts-*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != ".parts-now" {
		t.Errorf("%v, %v", left, err)
	}
}
