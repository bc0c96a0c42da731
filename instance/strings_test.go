package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// repeater answers every string with itself twice, so that rows have different sizes. It blames
// the inputs for the string "bad".
type repeater struct{ runs []int }

func (*repeater) Inputs() []tensor.Info {
	return []tensor.Info{{Name: "s", Type: tensor.Bytes, Shape: []int64{-1, 2}}}
}
func (*repeater) Outputs() []tensor.Info {
	return []tensor.Info{{Name: "y", Type: tensor.Bytes, Shape: []int64{-1, 2}}}
}
func (*repeater) Close() error     { return nil }
func (*repeater) Platform() string { return "repeater" }

// blamed is an error of a request's inputs.
type blamed struct{ error }

func (blamed) HTTPStatus() int { return http.StatusBadRequest }

func (e *repeater) Run(_ context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	e.runs = append(e.runs, rows)
	if err := tensor.CheckStrings(inputs[0].Data, 2*int64(rows)); err != nil {
		return nil, err
	}
	y := tensor.Tensor{Name: "y", Type: tensor.Bytes, Shape: slices.Clone(inputs[0].Shape)}
	for s := range tensor.Strings(inputs[0].Data) {
		if string(s) == "bad" {
			return nil, fmt.Errorf("run: %w", blamed{errors.New("a word is outside the table")})
		}
		y.Data = tensor.AppendString(y.Data, string(s)+string(s))
	}
	return []tensor.Tensor{y}, nil
}

// TestStringsInBatches checks that rows of different sizes are joined, run in parts, and split.
func TestStringsInBatches(t *testing.T) {
	e := &repeater{}
	s, err := NewServer(e, Options{Name: "twice", MaxBatch: 3, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	responses, _ := s.HandleBatch(t.Context(), []frame.Request{
		invoke(`{"instances":[["a",""]]}`), invoke(`{"instances":[["long one","é"],["",""]]}`),
		invoke(`{"instances":[["1","2"],["33","4"],["5",""],["6","7"]]}`), invoke(`{"instances":[["x","bad"]]}`), invoke(`{"instances":[["b","c"]]}`),
	})
	for i, want := range []string{
		`{"predictions":[["aa",""]]}`, `{"predictions":[["long onelong one","éé"],["",""]]}`,
		`{"predictions":[["11","22"],["3333","44"],["55",""],["66","77"]]}`, `{"error":"run: a word is outside the table"}` + "\n", `{"predictions":[["bb","cc"]]}`,
	} {
		if got := string(responses[i].Body); got != want {
			t.Errorf("answer %d is %q, want %q", i, got, want)
		}
	}
	if got := responses[3].Status; got != http.StatusBadRequest {
		t.Errorf("inputs at fault have the status %d", got)
	}
	if want := []int{3, 3, 1, 2, 1, 1}; !slices.Equal(e.runs, want) {
		t.Errorf("runs of %v rows, want %v", e.runs, want)
	}
	stats := struct {
		Models []struct {
			Rows      int                                                    `json:"inference_count"`
			Runs      int                                                    `json:"execution_count"`
			Last      int                                                    `json:"last_inference"`
			Inference struct{ Success, Fail, Queue struct{ Count, NS int } } `json:"inference_stats"`
			Batches   []struct {
				Size int `json:"batch_size"`
			} `json:"batch_stats"`
		} `json:"model_stats"`
	}{}
	get, _ := s.HandleBatch(t.Context(), []frame.Request{{Method: http.MethodGet, Path: "/v2/models/twice/stats"}, {Method: http.MethodGet, Path: "/v2/models/twice"}})
	if err := json.Unmarshal(get[0].Body, &stats); err != nil {
		t.Fatal(err)
	}
	got := stats.Models[0]
	if got.Rows != 8 || got.Runs != 6 || got.Last == 0 || got.Inference.Success.Count != 4 || got.Inference.Success.NS == 0 ||
		got.Inference.Fail.Count != 1 || len(got.Batches) != 3 || got.Batches[2].Size != 3 {
		t.Errorf("%s", get[0].Body)
	}
	if !strings.Contains(string(get[1].Body), `"platform":"repeater"`) {
		t.Errorf("%s", get[1].Body)
	}
}
