package instance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/faas-infer/faas-infer/instance/frame"
)

// TestMembersAreIsolated checks that an invalid member fails alone and does not spoil
// its batch.
func TestMembersAreIsolated(t *testing.T) {
	d := &doubler{maxBatch: 8, width: 1}
	s := newTestServer(t, d)
	requests := []frame.Request{
		invoke(`{"instances":[[1]]}`),
		invoke(`{"instances":[{"z":[1]}]}`),
		invoke(`{"instances":[[2],[3]]}`),
		invoke(`{"instances":[[1,2]]}`),
		invoke(strings.Repeat(" ", 1001)),
		{Method: http.MethodGet, Path: "/v2/health/live"},
		binaryInvoke(4),
	}
	responses, spent := s.HandleBatch(context.Background(), requests)
	want := []struct {
		status int
		body   string
	}{
		{200, `{"predictions":[[2]]}`},
		{400, `no input`},
		{200, `{"predictions":[[4],[6]]}`},
		{400, `the model takes x FP32 [-1,1]`},
		{413, `the body is larger than the limit of 1000 bytes`},
		{200, `{"live":true}`},
		{200, `"data":[8]`},
	}
	for i, w := range want {
		if responses[i].Status != w.status || !strings.Contains(string(responses[i].Body), w.body) {
			t.Errorf("member %d: got %d %s, want %d %s", i, responses[i].Status, responses[i].Body, w.status, w.body)
		}
	}
	if !slices.Equal(d.runs, []int{4}) {
		t.Errorf("the good members ran as %v rows, want one run of 4", d.runs)
	}
	if spent.Exec <= 0 {
		t.Errorf("the engine ran for %v", spent.Exec)
	}
}

// TestFailedBatchRunsOneByOne: a member that makes the run fail gets 500, its
// neighbours their answers.
func TestFailedBatchRunsOneByOne(t *testing.T) {
	d := &doubler{maxBatch: 8, width: 1}
	s := newTestServer(t, d)
	responses, _ := s.HandleBatch(context.Background(), []frame.Request{
		invoke(`{"instances":[[1]]}`), invoke(fmt.Sprintf(`{"instances":[[%d]]}`, poison)), invoke(`{"instances":[[3]]}`),
	})
	for i, status := range []int{200, 500, 200} {
		if responses[i].Status != status {
			t.Errorf("member %d: got %d %s, want %d", i, responses[i].Status, responses[i].Body, status)
		}
	}
	if got := string(responses[1].Body); !strings.Contains(got, "an element is poison") {
		t.Errorf("the failed member's error is %s", got)
	}
	if got := testutil.ToFloat64(s.metrics.retries); got != 1 {
		t.Errorf("%v split batches counted, want 1", got)
	}
}

// TestLargeMembersRunInParts: no run has more rows than the batch limit, and
// no member is cut for another's sake.
func TestLargeMembersRunInParts(t *testing.T) {
	d := &doubler{maxBatch: 4, width: 1}
	s := newTestServer(t, d)
	responses, _ := s.HandleBatch(context.Background(), []frame.Request{
		invoke(`{"instances":[[1],[2],[3]]}`),
		invoke(`{"instances":[[4],[5]]}`),
		invoke(`{"instances":[[1],[2],[3],[4],[5],[6],[7],[8],[9]]}`),
	})
	for i, want := range []string{`{"predictions":[[2],[4],[6]]}`, `{"predictions":[[8],[10]]}`,
		`{"predictions":[[2],[4],[6],[8],[10],[12],[14],[16],[18]]}`} {
		if got := string(responses[i].Body); got != want {
			t.Errorf("member %d: got %s, want %s", i, got, want)
		}
	}
	if !slices.Equal(d.runs, []int{3, 2, 4, 4, 1}) {
		t.Errorf("runs of %v rows", d.runs)
	}
}

// TestShapesAreNotMixed: members whose open dimensions differ cannot be put
// together, but each kind can.
func TestShapesAreNotMixed(t *testing.T) {
	d := &doubler{maxBatch: 8, width: -1}
	s := newTestServer(t, d)
	responses, _ := s.HandleBatch(context.Background(), []frame.Request{
		invoke(`{"instances":[[1]]}`), invoke(`{"instances":[[2,3]]}`), invoke(`{"instances":[[4]]}`), invoke(`{"instances":[[5,6]]}`),
	})
	for i, want := range []string{`{"predictions":[[2]]}`, `{"predictions":[[4,6]]}`, `{"predictions":[[8]]}`, `{"predictions":[[10,12]]}`} {
		if got := string(responses[i].Body); got != want {
			t.Errorf("member %d: got %s, want %s", i, got, want)
		}
	}
	if !slices.Equal(d.runs, []int{2, 2}) {
		t.Errorf("runs of %v rows, want two of 2", d.runs)
	}
}

// TestOneMemberIsNotCopied checks that the engine gets a single member's binary data
// without a copy.
func TestOneMemberIsNotCopied(t *testing.T) {
	d := &doubler{maxBatch: 8, width: 1}
	s := newTestServer(t, d)
	r := binaryInvoke(1, 2)
	s.HandleBatch(context.Background(), []frame.Request{r})
	if unsafe.SliceData(d.last[0].Data) != &r.Body[len(r.Body)-8] {
		t.Error("the engine got a copy")
	}
}

// TestGivenUp checks that a batch does not run if its dispatcher has disconnected.
func TestGivenUp(t *testing.T) {
	d := &doubler{maxBatch: 8, width: 1}
	s := newTestServer(t, d)
	s.turn <- struct{}{} // Another batch runs.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	responses, _ := s.HandleBatch(ctx, []frame.Request{invoke(`{"instances":[[1]]}`), invoke(`{"instances":[[2]]}`)})
	for i, r := range responses {
		if r.Status != http.StatusServiceUnavailable {
			t.Errorf("member %d: got %d %s", i, r.Status, r.Body)
		}
	}
	if len(d.runs) != 0 {
		t.Errorf("it ran %v rows", d.runs)
	}
}

// A batch does not run that got its turn only when no member needs an answer any more; of
// one in which a member does, all run.
func TestTooLateToRun(t *testing.T) {
	d := &doubler{maxBatch: 8, width: 1}
	s := newTestServer(t, d)
	past, future := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	for _, c := range []struct {
		due    []time.Time
		status int
	}{
		{[]time.Time{past, past}, http.StatusServiceUnavailable},
		{[]time.Time{past, future}, http.StatusOK},
		{[]time.Time{past, {}}, http.StatusOK},
	} {
		var requests []frame.Request
		for _, due := range c.due {
			r := invoke(`{"instances":[[1]]}`)
			r.Due = due
			requests = append(requests, r)
		}
		responses, _ := s.HandleBatch(context.Background(), requests)
		for i, r := range responses {
			if r.Status != c.status {
				t.Errorf("due %v: member %d got %d %s, want %d", c.due, i, r.Status, r.Body, c.status)
			}
			if late := r.Header.Get("Retry-After") != ""; late != (c.status != http.StatusOK) {
				t.Errorf("member %d of status %d: Retry-After %t", i, r.Status, late)
			}
		}
	}
	if !slices.Equal(d.runs, []int{2, 2}) {
		t.Errorf("runs of %v rows, want two of 2", d.runs)
	}
}

// FuzzSplitMerge puts together batches of every mix of good, bad, poisonous and
// many-row members: each is answered exactly once, at its own position, with
// its own elements doubled.
func FuzzSplitMerge(f *testing.F) {
	f.Add(uint64(1), uint8(8), uint8(4))
	f.Add(uint64(2), uint8(40), uint8(1))
	f.Add(uint64(3), uint8(0), uint8(16))
	f.Fuzz(func(t *testing.T, seed uint64, count, maxBatch uint8) {
		d := &doubler{maxBatch: int(maxBatch%32) + 1, width: 1}
		s := newTestServer(t, d)
		random := rand.New(rand.NewPCG(seed, 0))
		requests := make([]frame.Request, int(count)%64)
		want := make([]string, len(requests))
		for i := range requests {
			requests[i], want[i] = randomMember(random, i)
		}
		responses, _ := s.HandleBatch(context.Background(), requests)
		if len(responses) != len(requests) {
			t.Fatalf("%d answers for %d requests", len(responses), len(requests))
		}
		for i, r := range responses {
			if got := fmt.Sprintf("%d %s", r.Status, r.Body); !strings.HasPrefix(got, want[i]) {
				t.Errorf("member %d: got %s, want %s", i, got, want[i])
			}
		}
	})
}

// randomMember returns a request and how its answer begins. The elements tell
// its position, so that no other's answer can pass for its own.
func randomMember(random *rand.Rand, at int) (frame.Request, string) {
	switch random.IntN(5) {
	case 0:
		return invoke(`{"instances":[[1,2,3]]}`), "400 "
	case 1:
		return invoke(fmt.Sprintf(`{"instances":[[%d],[%d]]}`, at, poison)), "500 "
	}
	rows := 1 + random.IntN(3)*random.IntN(20)
	if rows > defaultMaxRows {
		return invoke(`{"instances":[` + strings.Repeat(`[1],`, rows-1) + `[1]]}`), "400 "
	}
	in, out := make([]string, rows), make([]string, rows)
	for i := range rows {
		in[i], out[i] = fmt.Sprintf("[%d]", 1000*at+i), fmt.Sprintf("[%d]", 2*(1000*at+i))
	}
	return invoke(`{"instances":[` + strings.Join(in, ",") + `]}`), `200 {"predictions":[` + strings.Join(out, ",") + `]}`
}

// TestFailedBatchRunsOnce: where no request may run twice, a batch that fails does not run again
// member by member.
func TestFailedBatchRunsOnce(t *testing.T) {
	d := &doubler{maxBatch: 8, width: 1}
	s := newTestServer(t, d)
	requests := []frame.Request{invoke(`{"instances":[[1]]}`), invoke(fmt.Sprintf(`{"instances":[[%d]]}`, poison))}
	buffers, _ := frame.EncodeRequests(requests)
	r := httptest.NewRequest(http.MethodPost, frame.Path, &buffers)
	r.Header.Set("Content-Type", frame.ContentType)
	r.Header.Set(frame.OnceHeader, "1")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	responses, err := frame.ReadResponses(w.Body, int64(w.Body.Len()))
	if err != nil || len(responses) != 2 {
		t.Fatal(err, len(responses))
	}
	for i, r := range responses {
		if r.Status != 500 || !strings.Contains(string(r.Body), "no request of this function runs twice") {
			t.Errorf("member %d: got %d %s", i, r.Status, r.Body)
		}
	}
	if !slices.Equal(d.runs, []int{2}) || !d.once {
		t.Errorf("runs of %v rows, want one of 2; the engine knows that nothing may run twice: %v", d.runs, d.once)
	}
}
