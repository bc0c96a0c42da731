package peer

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
)

// brokenOffError ends an answer of which the client has parts already: the request must not run again.
type brokenOffError struct{ error }

// Unwrap is for [errors.As].
func (e brokenOffError) Unwrap() error { return e.error }

// takeParts hands the parts of an owner's answer on, and returns its end.
func takeParts(m Member, answer *http.Response, req *frame.Request) (*frame.Response, error) {
	if req.Parts == nil {
		return nil, errors.New("the replica sent parts of an answer, and nobody asked for them")
	}
	for {
		part, err := frame.ReadPart(answer.Body, maxReply)
		switch {
		case err != nil:
			return nil, err
		case part.Member < 0:
			return decode(m, part.Header, part.Body)
		}
		if err := req.Parts(part.Body); err != nil {
			return nil, err
		}
	}
}

// partsAnswer answers another replica in parts, if it asks for them and the function has any.
type partsAnswer struct {
	*web.Parts
	w     http.ResponseWriter
	begun bool
}

// write sends a part at once.
func (a *partsAnswer) write(p frame.Part) error {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", frame.ContentType)
		a.w.Header().Set(frame.PartsHeader, "1")
	}
	if _, err := a.w.Write(frame.AppendPart(nil, p)); err != nil {
		return err
	}
	return http.NewResponseController(a.w).Flush()
}

// invokeInParts is invoke for a request that may take its answer in parts. sent says that it has: the answer's end is
// sent, too.
func invokeInParts(w http.ResponseWriter, r *http.Request, held *web.Body, d provider.Dispatcher,
	req *frame.Request) (sent bool, response *frame.Response, err error) {
	patience := inHeader(r, patienceHeader, time.Millisecond)
	if r.Header.Get(frame.PartsHeader) == "" {
		response, err = invoke(r.Context(), d, req, patience)
		return false, response, err
	}
	if err = held.TakeAnswer(web.MaxUnsentParts); err != nil {
		return false, nil, err
	}
	ctx, fail := context.WithCancelCause(r.Context())
	a := &partsAnswer{w: w}
	a.Parts = web.NewParts(func(part []byte) error { return a.write(frame.Part{Body: part}) }, fail)
	req.Parts = a.Take
	response, err = invoke(ctx, d, req, patience)
	if n, _ := a.End(); n == 0 {
		return false, response, err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.As(err, new(*web.Error)) {
		response, err = nil, cause // The other replica lacks parts, whatever the dispatcher says.
	}
	end, header := response, http.Header{}
	if err != nil {
		end = &frame.Response{Status: web.StatusOf(err), Body: web.ErrorJSON(req.Path, err)}
	}
	if end.Late {
		header.Set(lateHeader, "1")
	}
	buffers, _ := frame.EncodeResponses([]frame.Response{*end})
	_ = a.write(frame.Part{Member: -1, Header: header, Body: bytes.Join(buffers, nil)}) // It fails if the other replica has hung up.
	return true, response, err
}
