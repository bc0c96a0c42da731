package instance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/ragged"
)

// paddedSummer is a summer whose rows may be padded.
type paddedSummer struct{ summer }

func (s *paddedSummer) Padding() *ragged.Padding { return &ragged.Padding{Mask: 0, Axes: [][]int{{}}} }

func newPaddedSummer(t *testing.T) (*paddedSummer, *Server) {
	t.Helper()
	engine := &paddedSummer{}
	s, err := NewServer(engine, Options{Name: "tiny", MaxBatch: 4, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	return engine, s
}

// tokenIDs is a request of rows of token ids, with a mask that begins with first.
func tokenIDs(first int, rows ...[]int) frame.Request {
	length := len(rows[0])
	var ids, mask []string
	for _, row := range rows {
		for at, id := range row {
			ids = append(ids, fmt.Sprint(id))
			if at == 0 {
				mask = append(mask, fmt.Sprint(first))
			} else {
				mask = append(mask, "1")
			}
		}
	}
	body := ""
	for _, in := range []struct {
		name string
		data []string
	}{{"input_ids", ids}, {"attention_mask", mask}} {
		body += fmt.Sprintf(`,{"name":"%s","shape":[%d,%d],"datatype":"INT32","data":[%s]}`, in.name, len(rows), length, strings.Join(in.data, ","))
	}
	return frame.Request{Method: http.MethodPost, Path: "/v2/models/tiny/infer", Header: http.Header{}, Body: []byte(`{"inputs":[` + body[1:] + `]}`)}
}

// Rows of different lengths run together, each request gets the answers to its own rows in their order, and what fails,
// is late, or has a mask that must not be extended does not disturb the others.
func TestTensorsOfDifferentLengthsRunTogether(t *testing.T) {
	engine, s := newPaddedSummer(t)
	late := tokenIDs(1, []int{1, 1, 1, 1})
	late.Due = time.Now().Add(-time.Second)
	responses, spent := s.HandleBatch(context.Background(), []frame.Request{
		tokenIDs(1, []int{1, 2, 3}, []int{4, 5, 6}), tokenIDs(1, []int{9}), late, tokenIDs(0, []int{5, 1, 1, 1, 1}), tokenIDs(1, []int{2, 2, 2, 2}),
	})
	for i, want := range []string{`"data":[6,15]`, `"data":[9]`, "", `"data":[4]`, `"data":[8]`} {
		body := string(responses[i].Body)
		if i == 2 {
			if responses[i].Status != http.StatusServiceUnavailable || responses[i].Header.Get("Retry-After") == "" {
				t.Errorf("late: %d %s", responses[i].Status, body)
			}
			continue
		}
		if responses[i].Status != 200 || !strings.Contains(body, want) {
			t.Errorf("member %d: %d %s, want %s", i, responses[i].Status, body, want)
		}
	}
	// The late row and one with another mask run, or are refused, apart from the four others.
	if engine.runs > 3 || spent.Rows != 6.0/5 {
		t.Errorf("%d runs, %v rows", engine.runs, spent.Rows)
	}
	responses, _ = s.HandleBatch(context.Background(), []frame.Request{tokenIDs(1, []int{1, 2}), tokenIDs(1, []int{poisoned, 1, 1}), tokenIDs(1, []int{8})})
	for i, want := range []int{200, 500, 200} {
		if responses[i].Status != want {
			t.Errorf("beside a failing one, member %d: %d %s, want %d", i, responses[i].Status, responses[i].Body, want)
		}
	}
}

// A request with more rows than a batch runs in parts, also beside others.
func TestManyRowsOfTensors(t *testing.T) {
	_, s := newPaddedSummer(t)
	rows := make([][]int, 11)
	want := make([]string, 11)
	for i := range rows {
		rows[i], want[i] = []int{i + 20, 1}, fmt.Sprint(i+21)
	}
	responses, _ := s.HandleBatch(context.Background(), []frame.Request{tokenIDs(1, rows...), tokenIDs(1, []int{3, 3, 3})})
	if body := string(responses[0].Body); !strings.Contains(body, `"data":[`+strings.Join(want, ",")+`]`) {
		t.Errorf("%d %s", responses[0].Status, body)
	}
	if body := string(responses[1].Body); !strings.Contains(body, `"data":[9]`) {
		t.Errorf("%d %s", responses[1].Status, body)
	}
}
