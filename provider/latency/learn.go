package latency

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Teachable is implemented by Models that can take a model's sizes from a request.
type Teachable interface {
	// Learn prepares a model with the sizes of a request to the function name, and returns them in
	// the notation of tensor.ParseShapes. largest are the largest sizes that a request may have, ""
	// for any. The error is a [web.Error] with the request's own status if the request is not valid, or if
	// the model does not run with its sizes.
	Learn(ctx context.Context, file, name, largest string, r *frame.Request) (shapes string, err error)
}

// learntKey is the store's key of the sizes that a request has taught of a model. They hold on all
// machines and for all functions of the model.
func learntKey(hash string) string { return hash + " learnt sizes" }

// Learnt returns the sizes that a request has taught of a model, as [Finder.Learn] stored them; "" if none has.
func Learnt(t *Finder, file string) string {
	hash, err := t.Models.Hash(file)
	if err != nil {
		return ""
	}
	p, err := t.Profiles.Profile(learntKey(hash))
	if err != nil {
		return ""
	}
	return p.Sizes
}

// Learn tries the sizes of a request to a function whose model runs with none that were guessed. It stores
// and returns them if the model runs. Otherwise the error is the answer to the request.
func (t *Finder) Learn(ctx context.Context, f *provider.Function, file string, r *frame.Request) (shapes string, err error) {
	models, ok := t.Models.(Teachable)
	if !ok {
		return "", errors.New("the sizes of requests cannot be tried here")
	}
	hash, err := t.Models.Hash(file)
	if err != nil {
		return "", err
	}
	if err := t.preparing.do(ctx, f.Name, t.Models.Bytes(file), func(ctx context.Context) error {
		shapes, err = models.Learn(ctx, file, f.Name, f.Inference.MaxShapes, r)
		return err
	}); err != nil {
		return "", err
	}
	if shapes == "" {
		return "", web.Refuse(http.StatusBadRequest, "the request has no sizes")
	}
	if err := t.Profiles.PutProfile(learntKey(hash), &profiler.Profile{Model: hash, Sizes: shapes}); err != nil {
		return "", fmt.Errorf("store the learnt sizes: %w", err)
	}
	return shapes, nil
}
