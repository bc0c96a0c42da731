package grpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider/web"
)

// An answer of a few megabytes does not take hundreds, whatever a program sends, and what is made of it counts until it is
// sent.
func TestAnswersTakeWhatTheyCount(t *testing.T) {
	bodies := web.NewBodyReader(1<<20, time.Minute, 1<<30)
	options := Options{Bodies: bodies, Charged: func(model string) string { return model }}
	answered := func(text string) error {
		a := &answer{options: &options, model: "f", header: http.Header{}}
		defer a.release()
		_, err := parseResponse(a, []byte(text), true, false)
		if err == nil && bodies.Held() < int64(len(text)) {
			t.Errorf("%d bytes are held of an answer of %d", bodies.Held(), len(text))
		}
		return err
	}
	list := func(element string) string { return strings.Repeat(element+",", 1<<20) + element }
	for what, text := range map[string]string{
		"outputs":    `{"outputs":[` + list(`{}`) + `]}`,
		"parameters": `{"parameters":{` + list(`"":1`) + `}}`,
		"elements":   `{"outputs":[{"name":"x","datatype":"INT64","shape":[1],"data":[` + strings.Repeat("0,", 9<<20) + `0]}]}`,
	} {
		var refused *status
		if err := answered(text); !errors.As(err, &refused) || refused.code != resourceExhausted {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := answered(`{"outputs":[{"name":"x","datatype":"FP32","shape":[1` + strings.Repeat(",1", maxDimensions) + `],"data":[1]}]}`); err == nil {
		t.Error("an output has too many dimensions")
	}
	if err := answered(`{"outputs":[{"name":"x","datatype":"FP32","shape":[1048577],"data":[` + list("0.5") + `]}]}`); err != nil {
		t.Error(err)
	}
	if held := bodies.Held(); held != 0 {
		t.Errorf("%d bytes are held after it", held)
	}
}

// The JSON part of an answer is read as encoding/json reads it, with null for what is absent.
func TestAnswersAreRead(t *testing.T) {
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	for text, want := range map[string]answerHead{
		`{"model_name":"m","model_version":"1","id":"\u00e9\"é\\","outputs":[{"name":"","datatype":"FP32","shape":[-1,2],"data":[[1, 2]]},{}]}`: {
			Model: "m", Version: "1", ID: `é"é\`,
			Outputs: []answerOutput{{Datatype: "FP32", Shape: []int64{-1, 2}, Data: raw("[[1, 2]]")}, {}},
		},
		` { "other" : [{"outputs":[{}]}], "parameters":{"a\t":true}, "outputs":[{"shape":null,"parameters":{"binary_data_size":8 , "p":"q"}}]} `: {
			Parameters: map[string]json.RawMessage{"a\t": raw("true")},
			Outputs:    []answerOutput{{Parameters: map[string]json.RawMessage{"binary_data_size": raw("8"), "p": raw(`"q"`)}}},
		},
		`{"model_name":null,"id":null,"parameters":null,"outputs":null}`: {},
	} {
		var got answerHead
		if err := got.parse([]byte(text)); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is read as %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{``, `[]`, `{} {}`, `{"id":1}`, `{"id":"}`, `{"id":"\x"}`, `{"parameters":[]}`, `{"outputs":[1]}`,
		`{"outputs":[{"shape":[1.5]}]}`, `{"outputs":[{"data":[1,]}]}`, `{"other":nul}`} {
		if got := new(answerHead); got.parse([]byte(text)) == nil {
			t.Errorf("%s is read as %+v", text, got)
		}
	}
}
