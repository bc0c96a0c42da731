package provider

import (
	"errors"
	"testing"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/spare"
)

// spareController leaves something of mnist only.
type spareController struct {
	*fakeController
	err error
}

func (spareController) Owns(name string) bool { return name == "mnist.openfaas-fn" }

func (spareController) Left(name string) (spare.State, bool) {
	return spare.State{Ready: 2}, name == "mnist.openfaas-fn"
}

func (c spareController) InvokeSpare(string, *frame.Request) (*frame.Response, error) {
	if c.err != nil {
		return nil, c.err
	}
	return &frame.Response{Status: 200}, nil
}

func TestBestEffort(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Controller = spareController{fakeController: o.Controller.(*fakeController)} })
	r.deploy(t, nil)
	b := BestEffort{r.Server}
	if s, err := b.Left("mnist.openfaas-fn"); err != nil || s.Ready != 2 || !b.Owns("mnist.openfaas-fn") || b.Owns("absent.openfaas-fn") {
		t.Errorf("%+v, %v", s, err)
	}
	var known interface{ HTTPStatus() int }
	if _, err := b.Left("absent.openfaas-fn"); !errors.As(err, &known) || known.HTTPStatus() != 404 {
		t.Errorf("an absent function: %v", err)
	}
	if b.Serves("absent.openfaas-fn") || !b.Serves("mnist.openfaas-fn") {
		t.Error("it serves what is absent, or not a model")
	}
	if resp, err := b.InvokeSpare(t.Context(), "mnist.openfaas-fn", &frame.Request{}); err != nil || resp.Status != 200 {
		t.Errorf("%+v, %v", resp, err)
	}
	if r = newRig(t, nil); (BestEffort{r.Server}).Serves("mnist.openfaas-fn") {
		t.Error("a controller without best effort serves such requests")
	}
}

// A synchronous request has no class.
func TestClassOfASynchronousRequest(t *testing.T) {
	r := invoker(t, echo, nil)
	for _, class := range []string{spare.BestEffort, "other"} {
		wantSentence(t, r.do("POST", "/function/mnist", "x", spare.Header, class), 400, "X-Infer-Class is for asynchronous requests only: send the request to /async-function/NAME")
	}
	if w := r.do("POST", "/function/mnist", "x"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
