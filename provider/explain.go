package provider

import (
	"maps"
	"strings"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// longestProblem is how much of a problem a status shows, in bytes: the last lines
// of an installation's log, and not all of it.
const longestProblem = 2 << 10

// runs is what runs of a function, and what is wrong with it. Of one that the
// controller does not know, nothing runs.
func (s *Server) runs(d *deployed) Status {
	now, ok := s.controller.Status(d.Name)
	if !ok {
		now = Status{}
	}
	if b, is := d.dispatcher.(broken); is {
		now.Problem = b.err.Error()
		return now
	}
	if in, ok := s.store.(doubting); ok {
		if why := in.Refused(d.Deployment.Namespace, d.Deployment.Service); why != "" {
			if now.Problem != "" {
				why += "; " + now.Problem
			}
			now.Problem = Before(why)
		}
	}
	return now
}

// doubting is a store whose functions others may change into what is not accepted; it
// tells why, "" where the latest is accepted. It is asked often.
type doubting interface {
	Refused(namespace, name string) string
}

// Before is what is told of a function whose latest deployment is not served, while
// the one before it is; why is why.
func Before(why string) string { return "what was deployed before is served: " + why }

// withProblem adds to a deployment's annotations why it is not served. A status of
// OpenFaaS has no field for that, and all of its clients show annotations.
func withProblem(of *map[string]string, problem string) *map[string]string {
	if problem == "" {
		return of
	}
	with := map[string]string{annotation.InferProblem: shortened(problem)}
	if of != nil {
		maps.Copy(with, *of)
	}
	return &with
}

// withoutProblem takes it out of a deployment that was made from a status.
func withoutProblem(annotations *map[string]string) {
	if annotations != nil {
		delete(*annotations, annotation.InferProblem)
	}
}

// shortened is a problem in one line: its beginning, which says what failed, and its
// end, where a log has its reason.
func shortened(problem string) string {
	problem = strings.ToValidUTF8(strings.Join(strings.Fields(problem), " "), "")
	if len(problem) <= longestProblem {
		return problem
	}
	const half = longestProblem / 2
	return strings.ToValidUTF8(problem[:half], "") + " … " + strings.ToValidUTF8(problem[len(problem)-half:], "")
}
