// Package ragged decides which rows of different lengths run together. A run pads its rows to its longest one,
// so rows of like lengths waste little, and few runs have little overhead. [Runs] weighs the one against the
// other by a cost; [Fit] learns that cost from the runs themselves. [Padding] fills up rows of tensors and cuts their
// answers.
//
// The package runs nothing and knows no texts. Begin reading at [Runs].
package ragged

import (
	"cmp"
	"slices"
)

// Cost is the time of a run of rows that are padded to a length, in any unit. It must not fall with either.
type Cost func(rows, length int) float64

// Runs cuts rows with these lengths into runs of at most maxRows rows, so that the sum of the runs' costs is the
// lowest that there is. Each run holds positions in lengths; the shortest rows come first. The time is
// proportional to the number of rows times maxRows.
//
// Rows that are sorted by length need only be cut: if two runs overlap, their rows can change places so that
// the run with the longer one keeps its length and the other gets no longer.
func Runs(lengths []int, cost Cost, maxRows int) [][]int {
	n := len(lengths)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lengths[a], lengths[b]) })
	// least[i] is the lowest cost of the first i rows, whose last run begins at from[i].
	least, from := make([]float64, n+1), make([]int, n+1)
	for end := 1; end <= n; end++ {
		length := lengths[order[end-1]]
		for begin := max(0, end-max(1, maxRows)); begin < end; begin++ {
			sum := least[begin] + cost(end-begin, length)
			if begin == max(0, end-max(1, maxRows)) || sum < least[end] {
				least[end], from[end] = sum, begin
			}
		}
	}
	var runs [][]int
	for end := n; end > 0; end = from[end] {
		runs = append(runs, order[from[end]:end:end])
	}
	slices.Reverse(runs)
	return runs
}
