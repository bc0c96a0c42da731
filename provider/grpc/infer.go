package grpc

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faas-infer/faas-infer/provider/web"
)

// Triton's parameters of a request in a stream and of its last answer.
const (
	wantFinalParameter = "triton_enable_empty_final_response"
	finalParameter     = "triton_final_response"
)

// maxPipelined is the most requests of one stream that are in progress. The next ones are not read.
const maxPipelined = 64

// infer sends one ModelInferRequest to the provider's routes and its answer to send. held holds the message
// and is freed.
func (c *call) infer(q *request, held *web.Body, given http.Header, final bool, send func(h http.Header, m *response) error) error {
	body, head, err := q.body(held.Bytes, held.Take, c.server.options.Bodies.Max)
	if err != nil {
		return err
	}
	given["Content-Type"] = []string{"application/octet-stream"}
	given[lengthHeader] = []string{strconv.Itoa(head)}
	return c.ask(q.model, http.MethodPost, q.path(), given, web.NewReadBody(held, body), len(body), func(a *answer, body []byte) error {
		m, err := parseResponse(a, body, q.typed(), final)
		if err != nil {
			return err
		}
		return send(a.header, m)
	})
}

// free gives back what a message holds.
func free(held *web.Body) {
	held.Free()
	held.Release()
}

func modelInfer(c *call) error {
	held, message, err := c.receive(c.server.options.Bodies.Max)
	if err != nil {
		return err
	}
	defer free(&held)
	q, err := parseRequest(message)
	if err != nil {
		return err
	}
	return c.infer(q, &held, c.given, false, func(h http.Header, m *response) error {
		copyMetadata(c.w.Header(), h)
		return c.send(m, false)
	})
}

// modelStreamInfer answers the requests of a stream in their order, as Triton does. Up to [maxPipelined] of them
// are in progress, so they can share batches. An answer may be an error; the stream goes on.
func modelStreamInfer(c *call) error {
	defer c.unblock()()
	var answering sync.WaitGroup
	var panicked atomic.Pointer[any]
	defer func() {
		answering.Wait()
		if p := panicked.Load(); p != nil {
			panic(*p) // The call's handler has who recovers.
		}
	}()
	slots := make(chan struct{}, maxPipelined)
	turn := make(chan struct{})
	close(turn)
	for {
		slots <- struct{}{} // Each answer gives its slot back, at the latest when the call's context ends.
		held, message, err := c.next(c.server.options.Bodies.Max)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		before, after := turn, make(chan struct{})
		turn = after
		answering.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panicked.Store(&p)
				}
				<-slots
				close(after)
			}()
			defer free(&held)
			c.answerOne(&held, message, before)
		})
	}
}

// answerOne answers one request of a stream when those before it are answered.
func (c *call) answerOne(held *web.Body, message []byte, before <-chan struct{}) {
	q, err := parseRequest(message)
	if err == nil {
		final := false
		for _, p := range q.parameters {
			final = final || p.name == wantFinalParameter && string(p.json) == "true"
		}
		err = c.infer(q, held, maps.Clone(c.given), final, func(_ http.Header, m *response) error {
			<-before
			if err := c.send(m, true); err != nil {
				return nil // The client is gone.
			}
			return c.flush()
		})
	}
	if err == nil {
		return
	}
	<-before
	m := appendString(nil, 1, statusOf(err).text)
	_ = c.reply(appendBytes(m, 2, appendString(nil, 3, q.id))) // It fails if the client is gone.
	_ = c.flush()
}

// flush sends what is written.
func (c *call) flush() error { return http.NewResponseController(c.w).Flush() }

// unblock makes reads of the call end with its context, or when the provider shuts down, until stop is called.
func (c *call) unblock() (stop func()) {
	stopped := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-stopped:
			return
		case <-c.r.Context().Done():
		case <-c.server.options.Shut:
		}
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Unix(1, 0)) // It fails if the stream is over.
	})
	return func() {
		close(stopped)
		waiting.Wait()
	}
}

// about reads the message of a call about a model, and returns the model and the beginning of paths for it.
func (c *call) about() (model, path string, err error) {
	held, message, err := c.receive(maxQuestion)
	if err != nil {
		return "", "", err
	}
	defer free(&held)
	names, err := namesOf(message, 1, 2)
	if err != nil {
		return "", "", err
	}
	if names[0] == "" {
		return "", "", errName
	}
	if err := checkNames(names...); err != nil {
		return "", "", err
	}
	version := ""
	if names[1] != "" {
		version = "/versions/" + url.PathEscape(names[1])
	}
	return names[0], modelPath(names[0], version), nil
}

var errName = web.BadRequest(errors.New("name is empty; it must be a function's NAME or NAME.NAMESPACE"))

// get sends a GET about a model.
func (c *call) get(model, path string, take func(a *answer, body []byte) error) error {
	// The provider's routes change the headers.
	return c.ask(model, http.MethodGet, path, maps.Clone(c.given), nil, 0, take)
}

// modelReady answers false for a function that is not there or not ready, as Triton does, and for a program without a
// model, which may answer any path: a model says that it is ready, or has metadata.
func modelReady(c *call) error {
	model, path, err := c.about()
	if err != nil {
		return err
	}
	var told struct{ Ready *bool }
	err = c.get(model, path+"/ready", func(_ *answer, body []byte) error {
		if len(body) > maxQuestion || json.Unmarshal(body, &told) != nil {
			told.Ready = nil
		}
		return nil
	})
	if err == nil && told.Ready == nil {
		err = c.get(model, path, func(a *answer, body []byte) error {
			_, err := parseMetadata(a, body)
			return err
		})
	}
	ready := told.Ready == nil || *told.Ready
	var s *status
	if errors.As(err, &s) {
		switch s.code {
		case notFound, unavailable, unimplemented, invalidArgument, internal:
			ready, err = false, nil
		}
	}
	if err != nil {
		return err
	}
	return c.reply(appendNumber(nil, 1, protowire.EncodeBool(ready)))
}

// metadata are those of a model in the Open Inference Protocol.
type metadata struct {
	Name     string   `json:"name"`
	Versions []string `json:"versions"`
	Platform string   `json:"platform"`
	Inputs   []info   `json:"inputs"`
	Outputs  []info   `json:"outputs"`
}

// info describes an input or output.
type info struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

// parseMetadata reads a model's metadata. The error is notFound if these are none.
func parseMetadata(a *answer, body []byte) (m metadata, err error) {
	// A dimension of two bytes takes 8 here and 10 in the message.
	if err := a.keep(objectsSize(body) + 8*len(body)); err != nil {
		return m, err
	}
	err = json.Unmarshal(body, &m)
	if err == nil && (m.Inputs == nil && m.Outputs == nil) {
		err = errors.New("inputs and outputs are missing")
	}
	if err != nil {
		return m, &status{code: notFound, text: "the function has no model: its metadata are not those of the Open Inference Protocol: " + err.Error()}
	}
	return m, nil
}

func modelMetadata(c *call) error {
	model, path, err := c.about()
	if err != nil {
		return err
	}
	return c.get(model, path, func(a *answer, body []byte) error {
		told, err := parseMetadata(a, body)
		if err != nil {
			return err
		}
		m := appendString(nil, 1, told.Name)
		for _, version := range told.Versions {
			m = appendString(m, 2, version)
		}
		m = appendString(m, 3, told.Platform)
		for at, all := range [][]info{told.Inputs, told.Outputs} {
			for _, t := range all {
				m = appendBytes(m, protowire.Number(4+at), appendShape(appendString(appendString(nil, 1, t.Name), 2, t.Datatype), 3, t.Shape))
			}
		}
		copyMetadata(c.w.Header(), a.header)
		return c.reply(m)
	})
}
