package provider

import (
	"cmp"
	"maps"
	"strings"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// maxProblem is the most bytes of a problem that a status shows. A problem may hold
// the log of a whole installation.
const maxProblem = 2 << 10

// statusOf returns a function's status with its problem. The status has no instances if the
// controller does not know the function.
func (s *Server) statusOf(d *deployed) Status {
	now, ok := s.controller.Status(d.Name)
	if !ok {
		now = Status{}
	}
	now.Rollout = s.rollouts.progress(d.Name).sentence()
	return s.fetching.shown(d.Name, d.explained(s.store, now))
}

// explained adds to a function's status the problems that its controller does not know.
func (d *deployed) explained(kept Store, now Status) Status {
	if b, is := d.dispatcher.(broken); is {
		now.Problem = b.err.Error()
		return now
	}
	if in, ok := kept.(refusalStore); ok {
		if why := in.Refused(d.Deployment.Namespace, d.Deployment.Service); why != "" {
			if now.Problem != "" {
				why += "; " + now.Problem
			}
			now.Problem = Before(why)
		}
	}
	if why := closedFor(d); why != "" {
		if now.Problem != "" {
			why += "; " + now.Problem
		}
		// Clients take a function with an available instance for one that answers.
		now.Problem, now.Slight, now.AvailableReplicas = why, false, 0
	}
	return now
}

// refusalStore is a store whose functions kubectl may change to something that the provider
// refuses. Refused returns the reason, "" if the latest deployment is accepted. It is
// called often.
type refusalStore interface {
	Refused(namespace, name string) string
}

// Before describes a function whose latest deployment is refused for the reason why,
// while the deployment before it is served.
func Before(why string) string { return "the previous deployment is served: " + why }

// withState adds a problem, a plan, a reach, texts, a promise, learnt sizes and a progress to a deployment's annotations.
// OpenFaaS' status has no fields for them, and all its clients show annotations.
func withState(of *map[string]string, now Status) *map[string]string {
	with := map[string]string{}
	if now.Problem != "" {
		with[annotation.InferProblem] = shortened(now.Problem)
	}
	if now.Plan != "" {
		with[annotation.InferPlan] = shortened(now.Plan)
	}
	if now.Reach != "" {
		with[annotation.InferReach] = shortened(now.Reach)
	}
	if now.Texts != "" {
		with[annotation.InferTexts] = shortened(now.Texts)
	}
	if now.Promise != "" {
		with[annotation.InferPromise] = shortened(now.Promise)
	}
	if progress := cmp.Or(now.Progress, now.Arriving); progress != "" {
		with[annotation.InferProgress] = shortened(progress)
	}
	if now.Rollout != "" {
		with[annotation.InferRollout] = now.Rollout
	}
	if now.Sharing != "" {
		with[annotation.InferSharing] = shortened(now.Sharing)
	}
	if now.Learnt != "" {
		with[annotation.InferLearntShapes] = shortened(now.Learnt)
	}
	if len(with) == 0 {
		return of
	}
	if of != nil {
		maps.Copy(with, *of)
	}
	return &with
}

// withoutState removes what withState adds from the annotations of a deployment that was made
// from a status.
func withoutState(annotations *map[string]string) {
	if annotations != nil {
		delete(*annotations, annotation.InferProblem)
		delete(*annotations, annotation.InferPlan)
		delete(*annotations, annotation.InferReach)
		delete(*annotations, annotation.InferTexts)
		delete(*annotations, annotation.InferPromise)
		delete(*annotations, annotation.InferProgress)
		delete(*annotations, annotation.InferRollout)
		delete(*annotations, annotation.InferSharing)
		delete(*annotations, annotation.InferLearntShapes)
	}
}

// shortened returns a problem in one line of at most maxProblem bytes and the mark of
// omission. It keeps the beginning, which says what failed, and the end, where a log has
// the reason.
func shortened(problem string) string {
	problem = strings.ToValidUTF8(strings.Join(strings.Fields(problem), " "), "")
	if len(problem) <= maxProblem {
		return problem
	}
	const half = maxProblem / 2
	return strings.ToValidUTF8(problem[:half], "") + " … " + strings.ToValidUTF8(problem[len(problem)-half:], "")
}
