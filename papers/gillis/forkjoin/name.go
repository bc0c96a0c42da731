package forkjoin

import (
	"fmt"

	"github.com/faas-infer/faas-infer/model/cut"
)

// PlanName identifies a plan between the members of a set: the first 16 hexadecimal digits of
// its hash.
func PlanName(p *cut.Plan) string { return p.Hash()[:16] }

// PartName is the name by which a worker serves its part of a round, counted from 1. It
// contains the plan, so the members of different plans never answer each other.
func PartName(plan string, round int) string { return fmt.Sprintf("%s-%d", plan, round) }
