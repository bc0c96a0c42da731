package control

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/web"
	"github.com/faas-infer/faas-infer/variant"
)

// The headers by which a request says what it asks, and an answer which variant gave it.
const (
	// latencyHeader is the request's own objective, such as 50ms.
	latencyHeader = "X-Infer-Latency"
	// accuracyHeader, in an answer too, is the lowest accuracy in percent.
	accuracyHeader = "X-Infer-Accuracy"
	// costHeader is the highest price of a request, in core-milliseconds.
	costHeader = "X-Infer-Cost"
	// modelHeader names a model or a variant.
	modelHeader = frame.ModelHeader
	// variantHeader of an answer names the variant that gave it.
	variantHeader = "X-Infer-Variant"
)

// asked reads what a request asks in its headers. It returns the zero Requirement if the
// request asks nothing.
func asked(h http.Header) (r variant.Requirement, err error) {
	if len(h[latencyHeader])+len(h[accuracyHeader])+len(h[costHeader])+len(h[modelHeader]) == 0 {
		return r, nil
	}
	for _, read := range []struct {
		header, is string
		into       func(value string) bool
	}{
		{latencyHeader, fmt.Sprintf("a duration above 0 and at most %v, such as 50ms", annotation.LongestSLO), func(value string) (ok bool) {
			r.Latency, err = time.ParseDuration(value)
			return err == nil && r.Latency > 0 && r.Latency <= annotation.LongestSLO
		}},
		{accuracyHeader, "a percentage above 0 and at most 100, such as 75.5", func(value string) bool { return above(value, 100, &r.Accuracy) }},
		{costHeader, "core-milliseconds, a number above 0, such as 40", func(value string) bool { return above(value, math.MaxFloat64, &r.Cost) }},
		{modelHeader, "the name of a model or a variant", func(value string) bool {
			r.Model = value
			return value != ""
		}},
	} {
		values := h[read.header]
		if len(values) == 0 {
			continue
		}
		if len(values) > 1 || !read.into(values[0]) {
			return r, web.Refuse(http.StatusBadRequest, "the header %s is %q: it must be %s, once", read.header, web.Clip(strings.Join(values, ", ")), read.is)
		}
	}
	return r, nil
}

// above reads a decimal number above 0 and at most most.
func above(value string, most float64, into *float64) bool {
	x, ok := annotation.ParseDecimal(value)
	*into = x
	return ok && x > 0 && x <= most
}

// modelInPath returns NAME, and what follows it, of a path /v2/models/NAME or /v1/models/NAME
// and below; nothing of any other.
func modelInPath(path string) (name, rest string) {
	const prefix = len("/v2/models/")
	if len(path) < prefix || path[:2] != "/v" || path[3:prefix] != "/models/" {
		return "", ""
	}
	name = path[prefix:]
	if end := strings.IndexAny(name, "/:"); end >= 0 {
		name, rest = name[:end], name[end:]
	}
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	return name, rest
}

// ask returns what a request to the function asks. A model's name in its path counts, unless it
// is the function's. The instances only know the
// function's name, so ask puts it there, and the asked name into the header: the answer has it. So it
// does with the name of a function that shares the instances with others.
func (c *classifier) ask(req *frame.Request, classes *variant.Classes) (variant.Requirement, error) {
	r, err := asked(req.Header)
	if err != nil {
		return r, err
	}
	if req.Owner != nil && r.Model == req.Owner.Name { // It names the function, or is tried again.
		r.Model = ""
	}
	c.rename(req)
	switch name, rest := modelInPath(req.Path); {
	case name == "" || name == c.service:
	case classes.Has(name):
		if r.Model != "" && r.Model != name {
			return r, web.Refuse(http.StatusBadRequest, "the path asks for model %q and the header %s for %q: ask for one", web.Clip(name), modelHeader, web.Clip(r.Model))
		}
		r.Model = name
		req.Path = req.Path[:len("/v2/models/")] + c.service + rest
		req.Header = called(req.Header, name)
	case len(classes.Offers()) > 1: // An instance names its function only.
		unknown := variant.Requirement{Query: variant.Query{Model: web.Clip(name)}}
		return r, web.Refuse(http.StatusNotFound, "%s; in a path, %s stands for all of them", classes.Unmet(unknown), c.service)
	}
	return r, nil
}

// rename puts the name that the instances know into the path of a request to one of several functions that
// share them. The name of that function goes into the header.
func (c *classifier) rename(req *frame.Request) {
	if req.Owner == nil {
		return
	}
	if name, rest := modelInPath(req.Path); name == req.Owner.Name {
		req.Path = req.Path[:len("/v2/models/")] + c.service + rest
	}
	if len(req.Header[modelHeader]) == 0 {
		req.Header = called(req.Header, req.Owner.Name)
	}
}

// called returns the headers of a request with the name by which its answer calls the model.
func called(h http.Header, name string) http.Header {
	if h == nil {
		h = http.Header{}
	}
	h[modelHeader] = []string{name}
	return h
}
