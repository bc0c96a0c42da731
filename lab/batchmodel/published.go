package batchmodel

import (
	"fmt"

	"github.com/faas-infer/faas-infer/lab/lambda"
)

// The settings of BATCH's validation (§VI-C): its models' times on AWS Lambda with 1536 and
// 3008 MB, batches of at most 15 and 20, timeouts of 10, 100 and 1000 ms, and two MMPP(2).
// The paper does not print the parameters of these MMPP(2). publishedArrivals replaces them
// by the MAP(2) that were fitted to its two traces, NYS Thruway and Twitter, and by two
// MMPP(2) of a low and a high rate, one with long and one with short stays.
var (
	publishedMemories = []int{1536, 3008}
	publishedBatches  = []int{15, 20}
	publishedTimeouts = []float64{0.01, 0.1, 1}
	publishedArrivals = []Vector{
		{Arrival: "NYS-MAP7", D0: [][]float64{{-55.650135, 0}, {0, -105.957535}}, D1: [][]float64{{16.609367, 39.040768}, {22.869309, 83.088226}}},
		{Arrival: "TW-MAP5", D0: [][]float64{{-51.755154, 0}, {0, -79.556804}}, D1: [][]float64{{31.564827, 20.190326}, {45.291043, 34.265761}}},
		{Arrival: "MMPP2(l=10,120 w=0.05,0.05)", D0: [][]float64{{-10.05, 0.05}, {0.05, -120.05}}, D1: [][]float64{{10, 0}, {0, 120}}},
		{Arrival: "MMPP2(l=20,200 w=1,2)", D0: [][]float64{{-21, 1}, {2, -202}}, D1: [][]float64{{20, 0}, {0, 200}}},
	}
)

// publishedCases lists the cases. They have no simulated percentiles; those of the exact model
// take their place.
func publishedCases() ([]*Vector, error) {
	var all []*Vector
	for _, model := range lambda.Models() {
		for _, memory := range publishedMemories {
			times, err := lambda.Service(model, memory)
			if err != nil {
				return nil, err
			}
			for _, batch := range publishedBatches {
				for _, timeout := range publishedTimeouts {
					for _, a := range publishedArrivals {
						v := a
						v.Name, v.B, v.T, v.S = fmt.Sprintf("%s, %d MB", model, memory), batch, timeout, times[:batch]
						all = append(all, &v)
					}
				}
			}
		}
	}
	return all, nil
}

// comparePublished compares the paper's model with the exact one in the settings of the
// paper's validation.
func comparePublished() ([]*Compared, error) {
	cases, err := publishedCases()
	if err != nil {
		return nil, err
	}
	var all []*Compared
	for _, v := range cases {
		c, err := compare(v)
		if err != nil {
			return nil, err
		}
		c.Truth, c.Shown = c.Exact, true
		all = append(all, c)
	}
	return all, nil
}
