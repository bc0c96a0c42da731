package watchdog

import (
	"net/http/httptest"
	"testing"
)

func TestAnswersThatWaitAreBounded(t *testing.T) {
	h := &ForkingHandler{Hold: true}
	piece := make([]byte, maxHeld/4)
	var answers []*answer
	begin := func() *answer {
		f := &run{ForkingHandler: h, request: httptest.NewRequest("GET", "/", nil)}
		f.answer = &answer{w: httptest.NewRecorder(), run: f, hold: true}
		return f.answer
	}
	write := func(a *answer) (waits bool) {
		t.Helper()
		if err := a.write(piece); err != nil {
			t.Fatal(err)
		}
		return !a.sent
	}
	for range maxHeldByAll / maxHeld {
		a := begin()
		answers = append(answers, a)
		for range 4 {
			if !write(a) {
				t.Fatal("it left too early")
			}
		}
	}
	late := begin()
	if write(late) {
		t.Error("there is no bound for all")
	}
	if write(answers[0]) || h.held.Load() != maxHeldByAll-maxHeld {
		t.Errorf("there is no bound for one, or %d bytes still count", h.held.Load())
	}
	if !write(begin()) {
		t.Error("what has left still counts")
	}
	for _, a := range answers {
		a.release()
	}
	if got := h.held.Load(); got != maxHeld/4 {
		t.Errorf("%d bytes are held", got)
	}
}
