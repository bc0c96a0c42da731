package infaas

import (
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/variant"
)

const header = "model,variant,hardware,state,latency_ms,rps,load_ms,memory_mb,accuracy,cost\n"

func TestReadVariants(t *testing.T) {
	rows, err := ReadVariants(strings.NewReader("\ufeff" + header + "resnet50,A,cpu,active,200.5,5,0,90,76.1,1\r\nresnet50,B,gpu,inactive,20,100,0,0,,3\n"))
	want := registration.Placed{Variant: variant.Variant{Model: "resnet50", Name: "A", Hardware: "cpu", Latency: 200500 * time.Microsecond, RPS: 5, Memory: 90, Accuracy: 76.1, Cost: 1}, State: variant.Active}
	if err != nil || len(rows) != 2 || rows[0] != want || rows[1].Accuracy != 0 {
		t.Errorf("%+v, %v", rows, err)
	}
}

// An error about a table names row and column.
func TestReadNamesRowAndColumn(t *testing.T) {
	good := "m,v,cpu,active,1,1,1,1,1,1\n"
	for text, want := range map[string]string{
		"":                      "header: the file is empty",
		"model,variant\n":       "column hardware is missing",
		header:                  "there is no variant",
		"cores," + header:       `column "cores"`,
		"model," + header:       `column "model"`,
		header + good + "m,v\n": "row 2, column hardware: the row ends",
		header + "m,v,cpu,active,1,1,1,1,1,1,1\n":    "row 1, column 11: there is no such column",
		header + good + "m,v,cpu,on,1,1,1,1,1,1\n":   `row 2, column state is "on": it is one of inactive, active`,
		header + ",v,cpu,active,1,1,1,1,1,1\n":       "row 1, column model is empty",
		header + "m,,cpu,active,1,1,1,1,1,1\n":       "row 1, column variant",
		header + "m,v,,active,1,1,1,1,1,1\n":         "row 1, column hardware",
		header + "m,v,cpu,active,0,1,1,1,1,1\n":      "row 1, column latency_ms",
		header + "m,v,cpu,active,1e300,1,1,1,1,1\n":  "row 1, column latency_ms",
		header + "m,v,cpu,active,1,0,1,1,1,1\n":      "row 1, column rps",
		header + "m,v,cpu,active,1,NaN,1,1,1,1\n":    "row 1, column rps",
		header + "m,v,cpu,active,1,1,-1,1,1,1\n":     "row 1, column load_ms",
		header + "m,v,cpu,active,1,1,1,-1,1,1\n":     "row 1, column memory_mb",
		header + "m,v,cpu,active,1,1,1,1,101,1\n":    "row 1, column accuracy is 101",
		header + "m,v,cpu,active,1,1,1,1,-1,1\n":     "row 1, column accuracy",
		header + "m,v,cpu,active,1,1,1,1,NaN,1\n":    "row 1, column accuracy",
		header + "m,v,cpu,active,1,1,1,1,1,-1\n":     "row 1, column cost",
		header + "m,v,cpu,active,1,1,1,1,1,\n":       "row 1, column cost",
		header + "m,v,cpu,active,1,1e-300,1,1,1,1e9": "row 1, column cost",
		header + good + "m,\"v,cpu\n":                "row 2",
	} {
		if _, err := ReadVariants(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// No text breaks the reader, and what it accepts is valid.
func FuzzReadVariants(f *testing.F) {
	f.Add(header + "resnet50,A,cpu,active,200,5,0,90,76,1\n")
	f.Fuzz(func(t *testing.T, text string) {
		rows, err := ReadVariants(strings.NewReader(text))
		if err != nil {
			return
		}
		for i := range rows {
			if err := rows[i].Check(); err != nil {
				t.Fatalf("%+v: %v", rows[i], err)
			}
		}
		NewTable(rows).Get(variant.Query{})
	})
}
