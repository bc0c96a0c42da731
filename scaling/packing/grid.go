package packing

import "github.com/faas-infer/faas-infer/cluster"

// dimensions are CPU, GPU, memory and GPU memory.
const dimensions = 4

type vector [dimensions]int64

func amounts(r cluster.Resources) vector {
	return vector{int64(r.CPU), int64(r.GPU), r.Memory, r.GPUMemory}
}

// grid measures resources in whole steps, so filling a node is an integer knapsack. A dimension
// that cannot run short before CPU or GPU has no steps.
type grid struct {
	step   vector
	size   [dimensions]int
	stride [dimensions]int
	// loose: if steps are not exact, needs become smaller or nodes larger, so everything
	// that really fits also fits on the grid. Otherwise the opposite holds: everything
	// that fits on the grid really fits.
	loose bool
	// extra is the number of steps of CPU and GPU by which a loose grid enlarges a node.
	extra [dimensions]int64
}

// These bound the cells of the knapsack's table: for a plan, which must be quick, and for a
// bound, which must be exact.
const (
	cellsOfPlan  = 1 << 13
	cellsOfBound = 1 << 18
)

// newGrid returns the coarsest grid on which the items are exact, or a coarser one if that has
// too many cells.
func newGrid(items []Item, classes []Class, loose bool) *grid {
	g := &grid{loose: loose}
	var largest vector
	for _, c := range classes {
		for d, x := range amounts(c.Free) {
			largest[d] = max(largest[d], x)
		}
	}
	binding := bindingMemory(items, classes)
	for _, it := range items {
		for d, x := range amounts(it.Need) {
			if d < 2 || binding[d] {
				g.step[d] = gcd(g.step[d], x)
			}
		}
	}
	exact := g.step
	limit := cellsOfPlan
	if loose {
		limit = cellsOfBound
	}
	// Amounts in bytes have few common divisors, so their steps are made coarse first.
	for d := 2; d < dimensions; d++ {
		if g.step[d] > 0 {
			g.step[d] = max(g.step[d], ceilDiv(largest[d], 64))
		}
	}
	for g.measure(largest) > limit {
		widest := 0
		for d := range dimensions {
			if g.size[d] > g.size[widest] {
				widest = d
			}
		}
		g.step[widest] *= 2
	}
	if loose {
		for d := range 2 {
			if g.step[d] != exact[d] {
				g.extra[d] = maxItems(items, classes)
			}
		}
		g.measure(largest)
	}
	return g
}

// measure sets sizes and strides for nodes up to largest. It returns the number of cells.
func (g *grid) measure(largest vector) int {
	cells := 1
	for d := range dimensions {
		g.stride[d], g.size[d] = cells, 1
		if g.step[d] > 0 {
			g.size[d] += int(g.room(d, largest[d]))
		}
		cells *= g.size[d]
	}
	return cells
}

// room is the number of steps in a node's amount of dimension d.
func (g *grid) room(d int, amount int64) int64 {
	if amount <= 0 {
		return 0
	}
	if g.loose && d >= 2 {
		return ceilDiv(amount, g.step[d])
	}
	return amount/g.step[d] + g.extra[d]
}

// need is the number of steps of dimension d that an item takes.
func (g *grid) need(d int, amount int64) int64 {
	if g.step[d] == 0 {
		return 0
	}
	if g.loose && d >= 2 {
		return amount / g.step[d]
	}
	return ceilDiv(amount, g.step[d])
}

// cell is the table's cell for a node with that room.
func (g *grid) cell(free cluster.Resources) int {
	cell := 0
	for d, x := range amounts(free) {
		if g.step[d] > 0 {
			cell += g.stride[d] * min(int(g.room(d, x)), g.size[d]-1)
		}
	}
	return cell
}

// bindingMemory returns which memories can run short. To find out, it fills a node's CPU and GPU
// with the items that need most memory per unit. A memory is binding if they need more than some
// node has.
func bindingMemory(items []Item, classes []Class) [dimensions]bool {
	var most, mostGPU [dimensions]float64 // per unit of CPU; per unit of GPU of items without CPU
	for _, it := range items {
		need := amounts(it.Need)
		for d := 2; d < dimensions; d++ {
			if need[0] > 0 {
				most[d] = max(most[d], float64(need[d])/float64(need[0]))
			} else {
				mostGPU[d] = max(mostGPU[d], float64(need[d])/float64(need[1]))
			}
		}
	}
	var binding [dimensions]bool
	for _, c := range classes {
		free := amounts(c.Free)
		for d := 2; d < dimensions; d++ {
			if most[d]*float64(free[0])+mostGPU[d]*float64(free[1]) > float64(free[d]) {
				binding[d] = true
			}
		}
	}
	return binding
}

// maxItems is an upper bound for the number of items on a node.
func maxItems(items []Item, classes []Class) int64 {
	least := int64(1 << 40)
	for _, it := range items {
		least = min(least, max(int64(it.Need.CPU), int64(it.Need.GPU)))
	}
	var most int64
	for _, c := range classes {
		most = max(most, (int64(max(c.Free.CPU, 0))+int64(max(c.Free.GPU, 0)))/least)
	}
	return most
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
