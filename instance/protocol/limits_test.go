package protocol

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// atMost returns a model that takes only so many rows in one request.
func atMost(rows int, m *Model) *Model {
	limited := *m
	limited.MaxRows = rows
	return &limited
}

func TestRowsHaveABound(t *testing.T) {
	one, two := atMost(2, one), atMost(2, two)
	const infer = "/v2/models/one/infer"
	for name, c := range map[string]struct {
		model   *Model
		request frame.Request
		wrong   string // empty if the request is taken
	}{
		"v2": {one, post(infer, `{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3,4]}]}`), ""},
		"v2, more": {one, post(infer, `{"inputs":[{"name":"x","shape":[3,2],"datatype":"FP32","data":[1,2,3,4,5,6]}]}`),
			`input "x" has 3 rows; at most 2 in one request`},
		"v2, binary": {one, binaryPost(infer, `{"inputs":[{"name":"x","shape":[3,2],"datatype":"FP32","parameters":{"binary_data_size":24}}]}`, make([]byte, 24)),
			`input "x" has 3 rows; at most 2 in one request`},
		"v2, more data": {one, post(infer, `{"inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[1,2,3,4,5]}]}`),
			`input "x": it has more than 4 elements; its shape is [2,2]`},
		"rows":            {one, post("/", `{"instances":[[1,2],[3,4]]}`), ""},
		"rows, more":      {one, post("/", `{"instances":[[1,2],[3,4],[5,6]]}`), "instance 2: too many rows; at most 2 in one request"},
		"rows, long":      {one, post("/", `{"instances":[[1,2,3,4,5]]}`), `input "x": it has more than 4 elements; the model takes x FP32 [-1,2]`},
		"rows by name":    {two, post("/", `{"instances":[{"ids":[1],"mask":true},{"ids":[1],"mask":true},{"ids":[1],"mask":true}]}`), "at most 2 in one request"},
		"columns":         {one, post("/", `{"inputs":[[1,2],[3,4]]}`), ""},
		"columns, more":   {one, post("/", `{"inputs":[[1,2],[3,4],[5,6]]}`), `input "x": too many rows; at most 2 in one request`},
		"columns, open":   {two, post("/", `{"inputs":{"ids":[[1,2,3,4,5,6,7]],"mask":[true]}}`), ""},
		"columns, a list": {two, post("/", `{"inputs":{"mask":[true,true,true],"ids":[[1]]}}`), `input "mask": too many rows`},
		"columns, a row":  {one, post("/", `{"inputs":5}`), `input "x" has the shape []`},
	} {
		t.Run(name, func(t *testing.T) {
			call, response := c.model.Decode(c.request)
			switch {
			case c.wrong == "" && call == nil:
				t.Errorf("refused: %s", response.Body)
			case c.wrong == "":
			case call != nil:
				t.Error("taken")
			case response.Status != http.StatusBadRequest || !strings.Contains(unquoted(response.Body), c.wrong):
				t.Errorf("got %d %s, want 400 with %s", response.Status, response.Body, c.wrong)
			}
		})
	}
}

func unquoted(body []byte) string { return strings.ReplaceAll(string(body), `\"`, `"`) }

// TestRefusedBodiesTakeNoMemory checks that the model's inputs and MaxRows limit the decoded
// memory, however long a body is.
func TestRefusedBodiesTakeNoMemory(t *testing.T) {
	m := atMost(32, &Model{Name: "m", Inputs: []tensor.Info{{Name: "x", Type: tensor.Int64, Shape: []int64{-1, 4}}}, Outputs: one.Outputs})
	const count = 1 << 20
	ones := strings.Repeat("1,", count) + "1"
	for name, body := range map[string]string{
		"v2":                 `{"inputs":[{"name":"x","shape":[32,4],"datatype":"INT64","data":[` + ones + `]}]}`,
		"v2, a shape to fit": fmt.Sprintf(`{"inputs":[{"name":"x","shape":[1,%d],"datatype":"INT64","data":[%s]}]}`, count+1, ones),
		"v2, many rows":      fmt.Sprintf(`{"inputs":[{"name":"x","shape":[%d,4],"datatype":"INT64","data":[%s]}]}`, count/4, ones),
		"v2, a long shape":   `{"inputs":[{"name":"x","shape":[` + ones + `],"datatype":"INT64","data":[1]}]}`,
		"v2, many inputs":    `{"inputs":[` + strings.Repeat(`{"name":"x","shape":[1,4],"datatype":"INT64","data":[1,1,1,1]},`, count/64) + `{}]}`,
		"v2, many outputs":   `{"inputs":[{"name":"x","shape":[1,4],"datatype":"INT64","data":[1,1,1,1]}],"outputs":[` + strings.Repeat(`{"name":"y"},`, count/128) + `{}]}`,
		"v2, a long name":    `{"inputs":[{"name":"` + ones + `"}]}`,
		"a long row":         `{"instances":[[` + ones + `]]}`,
		"many rows":          `{"instances":[[1,1,1,1]` + strings.Repeat(`,[1,1,1,1]`, count/16) + `]}`,
		"a long column":      `{"inputs":[[` + ones + `]]}`,
		"columns of numbers": `{"inputs":[` + ones + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			request := post("/", body)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			call, response := m.Decode(request)
			runtime.ReadMemStats(&after)
			if call != nil || response.Status != http.StatusBadRequest || len(response.Body) > 1000 {
				t.Errorf("got %v, %d %.200s", call != nil, response.Status, response.Body)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 256<<10 {
				t.Errorf("it took %d bytes of memory: %s", took, response.Body)
			}
		})
	}
}
