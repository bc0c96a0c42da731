package provider

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/web"
)

// defaultEvents is the number of entries in an answer if the query has no limit, maxEvents the maximum.
const (
	defaultEvents = 200
	maxEvents     = 1000
)

// Events is the answer of GET /system/events.
type Events struct {
	// Events are the latest decisions, the newest last.
	Events []decisions.Decision `json:"events"`
	// Next is the value of since in the query for those that follow.
	Next uint64 `json:"next"`
}

// eventRoutes serves the route of decisions.
type eventRoutes struct{ log *decisions.Log }

// list is GET /system/events[?namespace=][&function=][&since=][&limit=]. Without a namespace it lists the decisions
// about the functions of all of them, and those about no function.
func (s eventRoutes) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	since, err := queryNumber(query, "since", 0)
	if err != nil {
		return err
	}
	limit, err := queryNumber(query, "limit", defaultEvents)
	if err != nil {
		return err
	}
	of := address{namespace: query.Get("namespace")}
	if name := query.Get("function"); name != "" {
		if of, err = resolve(name, of.namespace); err != nil {
			return err
		}
	}
	out := Events{Events: []decisions.Decision{}}
	var found []decisions.Decision
	found, out.Next = s.log.Since(since, of.namespace, of.name, int(min(max(limit, 1), maxEvents)))
	out.Events = append(out.Events, found...)
	web.WriteJSON(w, out)
	return nil
}

// noUpload is POST /system/upload where bundles cannot be made.
func noUpload(http.ResponseWriter, *http.Request) error {
	return web.Refuse(http.StatusNotImplemented, "this provider makes no images of uploads: start it with --payload-secret and --builder-base, or make the image with `faas-infer-kubernetes image function`")
}

// queryNumber returns a number of a query, or other if it is not there.
func queryNumber(query url.Values, name string, other uint64) (uint64, error) {
	text := query.Get(name)
	if text == "" {
		return other, nil
	}
	n, err := strconv.ParseUint(text, 10, 53)
	if err != nil {
		return 0, web.Refuse(http.StatusBadRequest, "%s is %q: it must be a whole number, for example %s=%d", name, web.Clip(text), name, defaultEvents)
	}
	return n, nil
}

// decidedDeployment adds a deployment to the log of decisions. before is nil for a new function.
func (s eventRoutes) decidedDeployment(now time.Time, before *deployed, f *Function) {
	fields := decisions.Fields{Image: f.Deployment.Image, Revision: f.Revision}
	kind := decisions.Deploy
	if before != nil {
		kind, fields.Previous = decisions.Update, before.Revision
	}
	s.log.Add(now, f.Name, kind, fields)
}

// rejected adds the refusal of a deployment to the decisions, unless the client is gone, and returns its error.
func (s eventRoutes) rejected(ctx context.Context, now time.Time, a address, d types.FunctionDeployment, err error) error {
	if ctx.Err() == nil {
		s.log.Add(now, a.full(), decisions.Reject, decisions.Fields{Image: d.Image, Error: web.Conceal(err.Error())})
	}
	return err
}
