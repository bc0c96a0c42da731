package forkjoin_test

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/health/probe"
	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
)

// A master one of whose workers takes connections and answers nothing, as a stopped process does, has
// no answer to a health question either, so that whoever asks replaces the set. It answers before
// it has asked that worker for anything, and again once the worker does.
func TestSilentWorkerSilencesItsMaster(t *testing.T) {
	w, m := member(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "w"))
	if err != nil {
		t.Fatal(err)
	}
	if code, text := put(w, at(w, l.Addr().String())); code != http.StatusNoContent {
		t.Fatal(code, text)
	}
	var in, out cut.Tensor
	for text, of := range map[string]*cut.Tensor{
		`{"name":"x","as":"x","type":"UINT8","shape":[97,1],"further":[98,1]}`: &in,
		`{"name":"y","as":"y","type":"UINT8","shape":[97,1],"further":[98,1]}`: &out,
	} {
		if err := json.Unmarshal([]byte(text), of); err != nil {
			t.Fatal(err)
		}
	}
	e, err := forkjoin.New([]tensor.Info{info("x")}, []tensor.Info{info("y")}, []forkjoin.Round{{{Inputs: []cut.Tensor{in}, Outputs: []cut.Tensor{out}, Worker: m}}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := instance.NewServer(e, instance.Options{Name: "f", MaxBatch: 4, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	here, err := net.Listen("unix", filepath.Join(t.TempDir(), "m"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: s}
	go server.Serve(here)
	defer server.Close()
	alive := func() error {
		return probe.Alive(new(net.Dialer).DialContext, "unix", here.Addr().String(), time.Minute)
	}
	if err := alive(); err != nil {
		t.Errorf("before the first request: %v", err)
	}
	answers, _ := s.HandleBatch(t.Context(), []frame.Request{{
		Method: http.MethodPost, Path: "/v2/models/f/infer", Header: http.Header{"Content-Type": {"application/json"}},
		Body: []byte(`{"inputs":[{"name":"x","datatype":"UINT8","shape":[1,1],"data":[1]}]}`), Due: time.Now().Add(20 * time.Millisecond),
	}})
	if answers[0].Status < 500 {
		t.Errorf("the request is answered with %d %s", answers[0].Status, answers[0].Body)
	}
	if alive() == nil {
		t.Error("its master answers for it")
	}
	serveAt(t, l, nil) // It goes on.
	if err := alive(); err != nil {
		t.Errorf("once it goes on: %v", err)
	}
}

func info(name string) tensor.Info {
	return tensor.Info{Name: name, Type: tensor.Uint8, Shape: []int64{-1, 1}}
}
